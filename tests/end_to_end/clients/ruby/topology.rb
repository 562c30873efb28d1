# frozen_string_literal: true

# A topology on Bunny, which recovers it by itself. URL COUNT. Runs until it is killed. It tries all the while that the broker is away.

require "bunny"
require "json"
require "stringio"

url, count = ARGV
count = count.to_i
done = Queue.new
log = StringIO.new
session = Bunny.new(url, network_recovery_interval: 1, logger: Logger.new(log, level: Logger::ERROR))
session.after_recovery_completed { done << Process.clock_gettime(Process::CLOCK_MONOTONIC) }
session.start
channel = session.create_channel
count.times { |number| channel.queue("topology.#{number}", exclusive: true) }
puts({ declared: count }.to_json)
$stdout.flush
began = nil
begin
  sleep 0.05 while began.nil? && session.open?
  began ||= Process.clock_gettime(Process::CLOCK_MONOTONIC)
  recovered = done.pop
rescue Bunny::Exception # the close in words, which Bunny raises in the thread that has opened the session, and then recovers
  began ||= Process.clock_gettime(Process::CLOCK_MONOTONIC)
  retry
end
errors = log.string.lines.grep(/recover.*(queue|channel)|channel.*error/i).map(&:strip)
puts({ recovered: count, seconds: recovered - began, errors: errors }.to_json)
$stdout.flush
sleep
