-- settle: end units of work, each on its own: out of its in-flight list, then where it goes next, then its effects
-- KEYS queues lease tomb (flight queue)*
-- ARGV lease_ms day dead_max dead_timeout (pair payload ending stored delay effects)*
-- returns "LOST" when the identity was buried, else one status a unit: 1 settled; 0 not ours any more, nothing was
--   changed for it; -1 it is not cancelled any more (or never was), it is in flight as before; a text: the server refused,
--   the unit is in flight as before. Endings: done, failed, discarded, gone, expired, cancelled (leave no trace), retry,
--   snoozed and deferred (stored, due delay seconds from the server's now), dead and invalid (stored in the dead set),
--   kept (stored with the batch that stands in place of the delay), released (back to the right end of its queue),
--   interrupted (stored at the left end of its queue). A worker that read in the list of cancellations that a unit is
--   cancelled gives '?' and its jid as stored and its batch as delay: the unit ends so only while the list says so.
--   LREM is the fence: the late word of a process that lost the unit finds nothing. day is that of the statistics.
--   Effects are a JSON list, see lib/effects.lua.
-- include base
-- include keys
-- include to_dead
-- include effects
-- include stats
-- include came_back
local LEASE, TOMB = KEYS[2], KEYS[3]
if redis.call('EXISTS', TOMB) == 1 then
  return 'LOST'
end
redis.call('PEXPIRE', LEASE, ARGV[1])
local now = server_now()
local counts_as_processed = {
  done = 1, failed = 1, discarded = 1, gone = 1, retry = 1, snoozed = 1, dead = 1, kept = 1, interrupted = 1,
}
local counts_as_failed = {gone = 1, retry = 1, dead = 1, kept = 1, interrupted = 1}  -- an interruption too, as in Sidekiq
local leaves_no_trace = {done = 1, failed = 1, discarded = 1, gone = 1, expired = 1, cancelled = 1}
local processed, failed = 0, 0
local status = {}

-- Put a unit where it goes next.
local function place(ending, pair, payload, stored, delay)
  if ending == 'retry' then
    redis.call('ZADD', key('retry'), as_text(now + tonumber(delay)), stored)
  elseif ending == 'snoozed' or ending == 'deferred' then
    redis.call('ZADD', key('schedule'), as_text(now + tonumber(delay)), stored)
  elseif ending == 'dead' or ending == 'invalid' then
    to_dead(stored, now, '', tonumber(ARGV[3]), tonumber(ARGV[4]))
  elseif ending == 'kept' then
    to_dead(stored, now, delay, tonumber(ARGV[3]), tonumber(ARGV[4]))
  elseif ending == 'released' or ending == 'interrupted' then
    local origin = KEYS[3 + 2 * pair]
    local queue = string.sub(origin, #key('queue_prefix') + 1)
    redis.call('SADD', KEYS[1], queue)
    if ending == 'released' then
      redis.call('RPUSH', origin, payload)
      came_back(queue, 1)
    else
      redis.call('LPUSH', origin, stored)
    end
  end
end

local function is_cancelled(reason, batch)
  if string.sub(reason, 1, 1) ~= '?' then
    return true
  end
  local cancelled = key('cancelled')
  return redis.call('ZSCORE', cancelled, string.sub(reason, 2)) or redis.call('ZSCORE', cancelled, 'batch:' .. batch)
end

for unit = 1, (#ARGV - 4) / 6 do
  local at = 6 * unit - 1
  local pair, payload, ending, stored, delay = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local flight = KEYS[2 + 2 * pair]
  if ending == 'cancelled' and not is_cancelled(stored, delay) then
    status[unit] = -1
  else
    status[unit] = redis.pcall('LREM', flight, -1, payload)
  end
  if type(status[unit]) == 'table' then
    status[unit] = status[unit].err
  end
  if status[unit] == 1 and not leaves_no_trace[ending] then
    local fine, problem = pcall(place, ending, pair, payload, stored, delay)
    if not fine then
      redis.call('RPUSH', flight, payload)
      status[unit] = in_words(problem)
    end
  end
  if status[unit] == 1 then
    processed = processed + (counts_as_processed[ending] or 0)
    failed = failed + (counts_as_failed[ending] or 0)
    carry_out(payload, ending, ARGV[at + 5])
  end
end
finish_effects()

add_to_stat(key('stat_processed'), ARGV[2], processed)
add_to_stat(key('stat_failed'), ARGV[2], failed)
return status
