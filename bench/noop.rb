# The job of bench/contracts.py in Ruby: nothing.
require "sidekiq"

Sidekiq.configure_server { |config| config.redis = {url: ENV.fetch("BENCH_URL")} }
Sidekiq.logger.level = Logger::WARN

class BenchNoop
  include Sidekiq::Worker

  def perform(number)
  end
end
