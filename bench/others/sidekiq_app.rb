# The job in Ruby: it notes when it ran, as the others do.
require "sidekiq"

Sidekiq.configure_server { |config| config.redis = {url: ENV.fetch("BENCH_URL")} }
Sidekiq.configure_client { |config| config.redis = {url: ENV.fetch("BENCH_URL")} }
Sidekiq.logger.level = Logger::WARN

STAMPS = File.open(ENV.fetch("BENCH_STAMPS"), "r+b")

class Tell
  include Sidekiq::Worker

  def perform(number)
    STAMPS.pwrite([Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)].pack("q<"), 16 * number)
  end
end

if ARGV.length == 2
  single, count = ARGV.map(&:to_i)
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  single.times { |number| Tell.perform_async(number) }
  puts single / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
  (single...count).each_slice(1000) { |some| Sidekiq::Client.push_bulk("class" => Tell, "args" => some.map { |one| [one] }) }
end
