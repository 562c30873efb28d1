// The probe on amqplib (callbacks and events as its documentation has them): one order a line on stdin, one report a line on stdout
// (`support/clients/probes.py` says what they mean).
'use strict';

const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const amqp = require('amqplib');

const PATIENCE_MS = 120000; // how long a busy machine takes is not what is tested

function parse(line) {
  const order = { mode: 'confirm', count: '1', heartbeat: '60', linger: '0', listen: '' };
  for (const word of line.trim().split(/\s+/)) {
    const at = word.indexOf('=');
    order[word.slice(0, at)] = word.slice(at + 1);
  }
  return order;
}

const told = (error) => ({ class: error.constructor.name, code: error.code ?? null, text: error.message });

function within(promise) {
  const late = new AbortController();
  const limit = sleep(PATIENCE_MS, undefined, { signal: late.signal }).then(() => { throw new Error('no answer'); });
  limit.catch(() => {});
  return Promise.race([promise, limit]).finally(() => late.abort());
}

function publish(channel, order, number) {
  const id = `${order.run}-${number}`;
  const options = { messageId: id, mandatory: order.mandatory === '1' };
  if (order.mode !== 'confirm') {
    try {
      channel.publish('', order.key, Buffer.from(id), options);
      return Promise.resolve('sent');
    } catch (error) {
      return Promise.resolve(error.constructor.name);
    }
  }
  const answered = new Promise((resolve) => {
    channel.publish('', order.key, Buffer.from(id), options, (error) => resolve(error ? `callback: ${error.message}` : 'ack'));
  });
  return within(answered).catch((error) => error.message);
}

async function otherChannelLives(connection, other, order) {
  try {
    await within(new Promise((resolve, reject) => {
      other.publish('', order.free, Buffer.from('other'), {}, (error) => (error ? reject(error) : resolve()));
    }));
    for (let deadline = Date.now() + PATIENCE_MS; Date.now() < deadline;) {
      const message = await within(other.get(order.free, { noAck: true }));
      if (message) {
        await within((await connection.createChannel()).close());
        return message.content.toString() === 'other' ? 'ok' : `got ${message.content}`;
      }
    }
  } catch (error) {
    return told(error);
  }
  return 'nothing consumed';
}

async function listen(connection, queue, back, report) {
  const channel = await connection.createChannel();
  let last = 0;
  await channel.consume(queue, (message) => {
    const now = Date.now();
    if (last) report.longest_gap_s = Math.max(report.longest_gap_s, (now - last) / 1000);
    last = now;
    report.heard += 1;
    if (back && message.fields.redelivered) channel.ack(message);
    else if (back) channel.nack(message, false, true);
  }, { noAck: !back });
}

async function run(order) {
  const report = {
    seen: [], commit: '', returns: [], channel: 'open', refused: null, blocked: [], unblocked: 0, other: '', heard: 0,
    longest_gap_s: 0, outcomes: '',
  };
  let connection;
  try {
    connection = await amqp.connect(`${order.url}?heartbeat=${order.heartbeat}`);
  } catch (error) {
    report.refused = told(error);
    return report;
  }
  let failure = null;
  let closed = null;
  connection.on('error', (error) => { failure = { ...told(error), class: `connection 'error' ${error.constructor.name}` }; });
  connection.on('close', (error) => {
    if (error && !failure) failure = { ...told(error), class: `connection 'close' ${error.constructor.name}` };
  });
  connection.on('blocked', (reason) => report.blocked.push(reason));
  connection.on('unblocked', () => { report.unblocked += 1; });
  if (order.listen) await listen(connection, order.listen, order.back === '1', report);
  const other = await connection.createConfirmChannel();
  if (!['confirm', 'plain'].includes(order.mode)) throw new Error(`amqplib has no mode ${order.mode}`);
  const channel = order.mode === 'confirm' ? await connection.createConfirmChannel() : await connection.createChannel();
  other.on('error', () => {});
  channel.on('error', (error) => { closed = { ...told(error), class: `'error' event ${error.constructor.name}` }; });
  channel.on('return', (message) => {
    const { replyCode, replyText, routingKey } = message.fields;
    report.returns.push({ code: replyCode, text: replyText, key: routingKey, body: message.content.toString() });
  });
  for (let number = 0; number < Number(order.count); number += 1) {
    report.seen.push(await publish(channel, order, number));
  }
  if (order.other_first === '1') report.other = await otherChannelLives(connection, other, order);
  const until = Date.now() + Number(order.linger) * 1000;
  const hasSeen = () => closed || (report.blocked.length > 0 && report.blocked.length === report.unblocked)
    || (order.expect && report.heard >= Number(order.expect));
  while (Date.now() < until && !hasSeen()) await sleep(50);
  try {
    await within(channel.checkQueue(order.free));
  } catch (error) {
    report.channel = told(error);
  }
  if (closed) report.channel = closed;
  if (order.other_first !== '1') report.other = await otherChannelLives(connection, other, order);
  if (failure) report.channel = failure;
  await connection.close().catch(() => {});
  return report;
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = await run(parse(line));
    } catch (error) {
      answer = { broken: error.stack };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
}

main();
