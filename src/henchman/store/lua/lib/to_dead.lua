-- Put a payload with the dead: of its batch while that stands, else into the dead set, which is trimmed as Sidekiq does it
-- (wire format, section 8), up to a hundred at a time. What is trimmed and has effects is kept for the stager.
-- include bytes
local TRIMMED = 100

local function trim(dead, now, max_entries, timeout)
  local old = redis.call('ZCOUNT', dead, '-inf', as_text(now - timeout))
  local most = math.min(math.max(old, redis.call('ZCARD', dead) - max_entries), TRIMMED)
  local count, size = 0, 0
  while count < most and size < MOST_BYTES do
    local payload = redis.call('ZRANGE', dead, count, count)[1]
    if string.find(payload, '"hm"', 1, true) and type(redis.pcall('RPUSH', key('trimmed'), payload)) == 'table' then
      break  -- refused: it stays dead
    end
    count, size = count + 1, size + #payload
  end
  if count > 0 then
    redis.call('ZREMRANGEBYRANK', dead, 0, count - 1)
  end
end

local function to_dead(payload, now, batch, max_entries, timeout)
  local facts, dead = key('batch_base') .. batch, key('dead')
  if batch ~= '' and redis.call('EXISTS', facts) == 1 then
    redis.call('ZADD', facts .. ':dead', as_text(now), payload)
    return
  end
  redis.call('ZADD', dead, as_text(now), payload)
  trim(dead, now, max_entries, timeout)
end
