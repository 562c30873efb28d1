// The probe on ali-ons: one order a line on stdin, one report a line on stdout (`support/clients/rocketmq_probes.py` says what they mean).
'use strict';

const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const { Consumer, Message, Producer } = require('ali-ons');

const PATIENCE_MS = 120000; // where how long a busy machine takes is not what is tested; the library's own is 3 s
const FREE_AFTER_MS = 200; // the limited send is with the gateway by then
const LOGGER = { debug() {}, info() {}, warn() {}, error: console.error };

const told = (error) => ({ class: error.name, code: error.code ?? null, text: error.message });

function options(order) {
  return {
    nameSrv: order.namesrv, accessKeyId: 'none', accessKeySecret: 'none', namespace: '', httpclient: {}, logger: LOGGER,
    rebalanceInterval: 2000, heartbeatBrokerInterval: 3000,
  };
}

async function attempt(producer, topic, body) {
  try {
    await producer.send(new Message(topic, body));
    return 'ok';
  } catch (error) {
    return told(error);
  }
}

let producer;

async function send(order) {
  if (!producer) {
    producer = new Producer({ ...options(order), producerGroup: 'probe-producers' });
    producer.on('error', (error) => console.error(error));
    await producer.ready();
  }
  producer.options.sendMsgTimeout = PATIENCE_MS;
  const bodies = Array.from({ length: Number(order.count) }, (_, number) => `${order.run}-${number}`);
  const seen = [];
  const free = [];
  const freeOver = [];
  let over = false;
  let heldBegins;
  const heldBegun = new Promise((resolve) => { heldBegins = resolve; });
  let before = 0;
  const began = Date.now();
  const limited = (async () => {
    if (order.mode === 'async') {
      seen.push(...await Promise.all(bodies.map((body) => attempt(producer, order.topic, body))));
    } else {
      for (const [number, body] of bodies.entries()) {
        if (number === 1) heldBegins();
        if (number === bodies.length - 1 && order.timeout) producer.options.sendMsgTimeout = Number(order.timeout);
        seen.push(await attempt(producer, order.topic, body));
      }
    }
    over = true;
  })();
  if (order.free) {
    await heldBegun;
    await sleep(FREE_AFTER_MS);
    for (let number = 0; number < Number(order.free_count); number += 1) {
      free.push(await attempt(producer, order.free, 'free-0'));
      freeOver.push((Date.now() - began) / 1000);
      before += over ? 0 : 1;
    }
  }
  await limited;
  return { seen, free, free_over_s: freeOver, free_before: before, elapsed_s: (Date.now() - began) / 1000 };
}

async function consume(order) {
  const consumed = [];
  const failed = [];
  const consumer = new Consumer({ ...options(order), consumerGroup: order.group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
  consumer.on('error', (error) => console.error(error));
  consumer.subscribe(order.topic, '*', async (message) => {
    const body = message.body.toString();
    if (failed.length < Number(order.fail_first ?? 0) && !failed.includes(body)) {
      failed.push(body);
      return Consumer.ACTION_RETRY;
    }
    consumed.push(body);
    return undefined;
  });
  const began = Date.now();
  await consumer.ready();
  while (new Set(consumed).size < Number(order.expected) && Date.now() - began < Number(order.within) * 1000) await sleep(20);
  const elapsed = (Date.now() - began) / 1000;
  await consumer.close();
  return { consumed, failed, elapsed_s: elapsed };
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = Object.fromEntries(line.trim().split(/\s+/).map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]));
    let answer;
    try {
      answer = await (order.do === 'send' ? send(order) : consume(order));
    } catch (error) {
      answer = { broken: error.stack };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
