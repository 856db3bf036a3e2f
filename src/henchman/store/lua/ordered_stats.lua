-- ordered_stats: the figures of an ordered queue, as they are at one moment
-- KEYS queues
-- ARGV queue
-- returns {ids known, ids in flight, ids that failed, of those in flight, ids in the morgue, lag, processed, failed,
--   paused, limit, limit as the code has it, limit of a group}. lag: seconds since the first id that is not in flight
--   was due; "" when none is.
-- include base
-- include keys
-- include ordered
local now = server_now()

-- The ids that failed and are in flight, counted from whichever side is shorter.
local function failed_in_flight()
  local both, ids = 0, nil
  local from_busy = redis.call('HLEN', busy) <= redis.call('ZCARD', retry)
  ids = from_busy and redis.call('HKEYS', busy) or redis.call('ZRANGE', retry, 0, -1)
  for first = 1, #ids, 500 do
    local some = {unpack(ids, first, math.min(first + 499, #ids))}
    local found = from_busy and redis.call('ZMSCORE', retry, unpack(some)) or redis.call('HMGET', busy, unpack(some))
    for _, value in ipairs(found) do
      both = both + (value and 1 or 0)
    end
  end
  return both
end

-- An overdue id in flight waits for its holder, not for a slot: it says nothing about the lag.
local function lag()
  local first = 0
  while true do
    local found = redis.call('ZRANGE', due, '-inf', as_text(now), 'BYSCORE', 'LIMIT', first, 100, 'WITHSCORES')
    for at = 1, #found, 2 do
      if redis.call('HEXISTS', busy, found[at]) == 0 then
        return as_text(math.max(now - tonumber(found[at + 1]), 0))
      end
    end
    if #found < 200 then
      return ''
    end
    first = first + 100
  end
end

local counts = redis.call('HMGET', stat, 'processed', 'failed')
local limits = redis.call('HMGET', meta, 'limit', 'defined', 'group_limit')
return {
  redis.call('ZCARD', due),
  redis.call('HLEN', busy),
  redis.call('ZCARD', retry),
  failed_in_flight(),
  redis.call('ZCARD', base .. 'morgue'),
  lag(),
  counts[1] or 0,
  counts[2] or 0,
  redis.call('SISMEMBER', key('paused'), queue),
  limits[1] or '',
  limits[2] or '',
  limits[3] or '',
}
