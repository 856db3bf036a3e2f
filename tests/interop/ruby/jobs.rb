# What the Ruby side runs: each job says what it does by its arguments, and writes what happened into Redis.
require "json"
require "sidekiq"
require "sidekiq/api"

REDIS = {url: ENV.fetch("INTEROP_REDIS_URL")}
Sidekiq.configure_client { |config| config.redis = REDIS }
Sidekiq.configure_server do |config|
  config.redis = REDIS
  # Tests do not wait for the usual five seconds.
  config.options[:poll_interval_average] = 0.4
  require "sidekiq/launcher"
  Sidekiq::Launcher.send(:remove_const, :BEAT_PAUSE)
  Sidekiq::Launcher::BEAT_PAUSE = 0.5
end

module Trace
  def trace(event, *facts)
    Sidekiq.redis { |redis| redis.rpush("ruby:trace", JSON.generate([event, jid, *facts])) }
  end
end

class Echo # shows what arrived
  include Sidekiq::Worker
  include Trace
  sidekiq_options queue: "ruby"

  def perform(*args)
    trace("echo", *args)
  end
end

class Fails # always
  include Sidekiq::Worker
  include Trace
  sidekiq_options queue: "ruby", backtrace: true

  def perform(*args)
    trace("fails", *args)
    raise ArgumentError, "pas d'\u00e9t\u00e9 #{args.first}"
  end
end

class Shared # a job of both languages; here it fails when told "ruby"
  include Sidekiq::Worker
  include Trace
  sidekiq_options queue: "shared"

  def perform(who_fails, *rest)
    trace("shared", who_fails, *rest)
    raise "failed in Ruby" if %w[ruby both].include?(who_fails)
  end
end

class Long
  include Sidekiq::Worker
  include Trace
  sidekiq_options queue: "ruby"

  def perform(seconds)
    trace("long", seconds)
    ending = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    until Process.clock_gettime(Process::CLOCK_MONOTONIC) > ending || Sidekiq.redis { |redis| redis.get("ruby:open") }
      sleep 0.05
    end
  end
end
