# frozen_string_literal: true

# The probe on Bunny: one order a line on stdin, one report a line on stdout (`support/clients/probes.py` says what they mean).

require "bunny"
require "json"

PATIENCE_S = 120.0 # how long a busy machine takes is not what is tested
QUIET = Logger.new(IO::NULL)

def parse(line)
  order = { "mode" => "confirm", "count" => "1", "heartbeat" => "60", "linger" => "0", "listen" => "", "expect" => "0" }
  order.merge(line.split.to_h { |word| word.split("=", 2) })
end

def told(error)
  close = [:channel_close, :connection_close].map { |name| error.respond_to?(name) ? error.public_send(name) : nil }.compact.first
  code = close.respond_to?(:reply_code) ? close.reply_code : nil
  text = close.respond_to?(:reply_text) ? close.reply_text : error.message
  { class: error.class.name, code: code, text: text }
end

def publish(exchange, channel, order, number, confirm)
  id = "#{order["run"]}-#{number}"
  exchange.publish(id, routing_key: order["key"], message_id: id, mandatory: order["mandatory"] == "1")
  return "sent" unless confirm
  return "ack" if channel.wait_for_confirms

  refused = channel.nacked_set.include?(number + 1) ? ", nacked_set has it" : ""
  "wait_for_confirms = false#{refused}"
rescue Bunny::Exception, Timeout::Error => e
  e.class.name
end

# As many as the window lets go unanswered, as fast as they go; what becomes of each is what Bunny's own confirm callback says.
def flood(channel, exchange, order, report)
  count = order["count"].to_i
  every = order["every"].to_i
  outcomes = "?" * count
  settled = 0
  room = SizedQueue.new(1000)
  channel.confirm_select(lambda do |tag, _multiple, nack|
    settled += 1 if outcomes[tag - 1] == "?"
    outcomes[tag - 1] = nack ? "N" : "A"
    room.pop(true)
  rescue ThreadError
    nil # a tag was answered twice: the outcomes tell
  end)
  count.times do |number|
    room.push(true)
    id = "#{order["run"]}-#{number}"
    key = ((number + 1) % every).zero? ? order["every_key"] : order["key"]
    begin
      exchange.publish(id, routing_key: key, message_id: id)
    rescue RuntimeError => e
      # Bunny 2.19 walks its set of unconfirmed tags without its lock when a bulk ack comes. Adding to it fails before anything is sent.
      raise unless e.message.include?("during iteration")

      retry
    end
  end
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_S
  sleep 0.01 while settled < count && Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
  report[:outcomes] = outcomes
  report[:nacked] = channel.nacked_set.sort
end

def other_channel_lives(connection, other, order)
  other.default_exchange.publish("other", routing_key: order["free"])
  return "not confirmed" unless other.wait_for_confirms

  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_S
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
    _, _, body = other.basic_get(order["free"], manual_ack: false)
    next if body.nil?

    connection.create_channel.close
    return body == "other" ? "ok" : "got #{body}"
  end
  "nothing consumed"
rescue Bunny::Exception, Timeout::Error => e
  told(e)
end

# `timeout`, for the last publish: wait_for_confirms on a channel that is closed meanwhile waits it out.
def give_up_after(connection, order)
  connection.instance_variable_set(:@continuation_timeout, order["timeout"].to_i) if order["timeout"]
end

def listen(connection, queue, back, report)
  last = nil
  channel = connection.create_channel
  channel.queue(queue, passive: true).subscribe(manual_ack: back) do |delivery|
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    report[:longest_gap_s] = [report[:longest_gap_s], now - last].max if last
    last = now
    report[:heard] += 1
    if back && delivery.redelivered?
      channel.ack(delivery.delivery_tag)
    elsif back
      channel.nack(delivery.delivery_tag, false, true)
    end
  end
end

def run(order)
  report = { seen: [], commit: "", returns: [], channel: "open", refused: nil, blocked: [], unblocked: 0, other: "", heard: 0,
             longest_gap_s: 0.0, outcomes: "" }
  failure = nil
  handler = Object.new
  handler.define_singleton_method(:raise) { |error| failure ||= error } # the first: its reader meets the closed socket a moment later
  options = { heartbeat: order["heartbeat"].to_i, automatically_recover: false, logger: QUIET, session_error_handler: handler,
              continuation_timeout: PATIENCE_S * 1000, connection_timeout: PATIENCE_S }
  connection = Bunny.new(order["url"], **options)
  begin
    connection.start
  rescue Bunny::Exception, Timeout::Error => e
    report[:refused] = told(e)
    return report
  end
  if failure # by default Bunny raises it in the thread that made the session
    report[:refused] = told(failure)
    return report
  end
  connection.on_blocked { |method| report[:blocked] << method.reason }
  connection.on_unblocked { report[:unblocked] += 1 }
  listen(connection, order["listen"], order["back"] == "1", report) unless order["listen"].empty?
  other = connection.create_channel
  channel = connection.create_channel
  other.confirm_select
  closed = nil
  channel.on_error { |_, method| closed = { class: "on_error #{method.class.name}", code: method.reply_code, text: method.reply_text } }
  exchange = channel.default_exchange
  exchange.on_return do |returned, _, body|
    report[:returns] << { code: returned.reply_code, text: returned.reply_text, key: returned.routing_key, body: body }
  end
  channel.confirm_select if order["mode"] == "confirm"
  channel.tx_select if order["mode"] == "tx"
  if order["mode"] == "flood"
    flood(channel, exchange, order, report)
  else
    report[:seen] = Array.new(order["count"].to_i) do |number|
      give_up_after(connection, order) if number == order["count"].to_i - 1
      publish(exchange, channel, order, number, order["mode"] == "confirm")
    end
  end
  if order["mode"] == "tx"
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + order["pause"].to_f
    sleep 0.01 while Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline && channel.open?
    begin
      channel.tx_commit
      report[:commit] = "committed"
    rescue Bunny::Exception, Timeout::Error => e
      report[:commit] = e.class.name
    end
  end
  report[:other] = other_channel_lives(connection, other, order) if order["other_first"] == "1"
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + order["linger"].to_f
  until Process.clock_gettime(Process::CLOCK_MONOTONIC) >= deadline ||
        (!report[:blocked].empty? && report[:blocked].size == report[:unblocked]) || !channel.open? ||
        (order["expect"] != "0" && report[:heard] >= order["expect"].to_i)
    sleep 0.05
  end
  begin
    channel.queue_declare(order["free"], passive: true)
  rescue Bunny::Exception, Timeout::Error => e
    report[:channel] = told(e)
  end
  report[:channel] = closed if closed
  report[:other] = other_channel_lives(connection, other, order) unless order["other_first"] == "1"
  report[:channel] = told(failure) if failure
  connection.close if connection.open?
  report
end

$stdout.sync = true
while (line = $stdin.gets)
  begin
    puts run(parse(line)).to_json
  rescue StandardError => e
    puts({ broken: e.full_message(highlight: false) }.to_json)
  end
end
