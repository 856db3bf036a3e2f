-- settle: end units of work, each on its own: out of its in-flight list, then where it goes next, then its effects
-- KEYS lease tomb processed processed_day failed failed_day retry schedule dead cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped (flight queue)*pairs (own)*
-- ARGV lease_ms dead_max dead_timeout count pairs (pair payload ending stored delay effects)*
-- returns "LOST" when the identity was buried, else one status a unit: 1 settled; 0 not ours any more, nothing was
--   changed for it; -1 it is not cancelled any more (or never was), it is in flight as before; a text: the server refused, the unit is in flight as before. Endings: done, failed, discarded,
--   gone, expired, cancelled (leave no trace), retry, snoozed and deferred (stored, due delay seconds from the server's now),
--   dead and invalid (stored in the dead set), kept (stored with the batch that stands in place of the delay), released (back to the right end of its queue), interrupted (stored at
--   the left end of its queue). Who read in the list of cancellations that a unit is cancelled gives '?' and its jid
--   as stored and its batch as delay: it ends so only while the list says so. LREM is the fence: a late word of somebody who lost the unit finds nothing. Effects
--   are a JSON list, see lib/effects.lua.
-- include now
-- include bury_payload
-- include words
-- include batch
-- include effects
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 'LOST'
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local now = server_now()
local counts_as_processed = {
  done = 1, failed = 1, discarded = 1, gone = 1, retry = 1, snoozed = 1, dead = 1, kept = 1, interrupted = 1,
}
local counts_as_failed = {gone = 1, retry = 1, dead = 1, kept = 1, interrupted = 1}  -- an interruption too, as in Sidekiq
local processed, failed = 0, 0
local status = {}

local function delayed(set)
  return function(pair, payload, stored, delay)
    redis.call('ZADD', set, as_text(now + tonumber(delay)), stored)
  end
end
local function die(pair, payload, stored)
  to_dead(KEYS[9], stored, now, tonumber(ARGV[2]), tonumber(ARGV[3]))
end
local function keep(pair, payload, stored, batch)  -- with its batch, as long as there is one
  if redis.call('EXISTS', KEYS[13] .. batch) == 0 then
    return die(pair, payload, stored)
  end
  redis.call('ZADD', KEYS[13] .. batch .. ':dead', as_text(now), stored)
end
local function make_known(queue)
  redis.call('SADD', KEYS[15], string.sub(queue, #KEYS[14] + 1))
end
local function release(pair, payload)
  local queue = KEYS[19 + 2 * pair]
  make_known(queue)
  redis.call('RPUSH', queue, payload)
end
local function requeue(pair, payload, stored)
  local queue = KEYS[19 + 2 * pair]
  make_known(queue)
  redis.call('LPUSH', queue, stored)
end
local moves = {
  retry = delayed(KEYS[7]), snoozed = delayed(KEYS[8]), deferred = delayed(KEYS[8]), dead = die, invalid = die,
  kept = keep, released = release,
  interrupted = requeue,
}

local function is_cancelled(said, batch)
  if string.sub(said, 1, 1) ~= '?' then
    return true
  end
  return redis.call('ZSCORE', KEYS[10], string.sub(said, 2)) or redis.call('ZSCORE', KEYS[10], 'batch:' .. batch)
end

local carry_out, count_batches = carrying_out(10, 19 + 2 * ARGV[5], true)

for unit = 1, tonumber(ARGV[4]) do
  local at = 6 * unit - 1
  local pair, payload, ending = tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local flight = KEYS[18 + 2 * pair]
  if ending == 'cancelled' and not is_cancelled(ARGV[at + 4], ARGV[at + 5]) then
    status[unit] = -1
  else
    status[unit] = redis.pcall('LREM', flight, -1, payload)
  end
  if type(status[unit]) == 'table' then
    status[unit] = status[unit].err
  end
  local move = moves[ending]
  if status[unit] == 1 and move then
    local fine, problem = pcall(move, pair, payload, ARGV[at + 4], ARGV[at + 5])
    if not fine then
      redis.call('RPUSH', flight, payload)
      status[unit] = in_words(problem)
    end
  end
  if status[unit] == 1 then
    processed = processed + (counts_as_processed[ending] or 0)
    failed = failed + (counts_as_failed[ending] or 0)
    if ARGV[at + 6] ~= '' then
      carry_out(payload, ending, ARGV[at + 6])
    end
  end
end

count_batches()
local function count(total, day, by)
  if by > 0 then
    redis.pcall('INCRBY', total, by)  -- a counter that somebody broke must not hide what was settled
    if redis.pcall('INCRBY', day, by) == by then
      redis.pcall('EXPIRE', day, 157680000)
    end
  end
end
count(KEYS[3], KEYS[4], processed)
count(KEYS[5], KEYS[6], failed)
return status
