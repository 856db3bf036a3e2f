-- Put a payload into the dead set and trim it, as Sidekiq does (wire format, section 8).
local function to_dead(dead, payload, now, max_entries, timeout)
  redis.call('ZADD', dead, as_text(now), payload)
  redis.call('ZREMRANGEBYSCORE', dead, '-inf', as_text(now - timeout))
  redis.call('ZREMRANGEBYRANK', dead, 0, -(max_entries + 1))
end
