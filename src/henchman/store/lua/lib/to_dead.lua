-- Put a payload with the dead: of its batch while that stands, else into the dead set, which is trimmed as Sidekiq does it
-- (wire format, section 8).
local function to_dead(payload, now, batch, max_entries, timeout)
  local facts, dead = key('batch_base') .. batch, key('dead')
  if batch ~= '' and redis.call('EXISTS', facts) == 1 then
    redis.call('ZADD', facts .. ':dead', as_text(now), payload)
    return
  end
  redis.call('ZADD', dead, as_text(now), payload)
  redis.call('ZREMRANGEBYSCORE', dead, '-inf', as_text(now - timeout))
  redis.call('ZREMRANGEBYRANK', dead, 0, -(max_entries + 1))
end
