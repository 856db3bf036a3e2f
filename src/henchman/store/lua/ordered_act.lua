-- ordered_act: what people do to ids of an ordered queue, each on its own
-- KEYS base cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped
-- ARGV act failed_only floor (id)*
-- returns {statuses, last}, one status an id: 1 done, 0 there is nothing to act on, 2 it is in flight and stays as it
--   is, a text: the server refused. act: revive (what is in the morgue joins what waits, due now, with a fresh budget
--   and without the old error; of an id in flight it joins what arrived meanwhile), kill (all that waits goes to the
--   morgue), delete (all that waits is gone; of an id in flight what arrived meanwhile is gone, but the id stays held
--   until its holder says how it ended: nothing may run beside it), bury (what is in the morgue is gone), run (due
--   now, in the order of before). failed_only: "1" leaves alone who did not fail. floor: run gives no time before it;
--   last is the last time that it gave.
-- include now
-- include words
-- include ordered
-- include batch
-- include ordered_track
local act, failed_only = ARGV[1], ARGV[2] == '1'
local now, morgue, reasons = server_now(), KEYS[1] .. 'morgue', KEYS[1] .. 'merr'
local start, moved = math.max(now, tonumber(ARGV[3])), 0
local settings = redis.call('HMGET', meta, 'separator', 'collapse', 'track')
local separator, collapse = settings[1], settings[2]
track = settings[3] and tracking(5)

local DELETED = '{"ending":"deleted","reason":"deleted by hand"}'

local function forgive(id)
  redis.call('HDEL', crash, id)
  redis.call('HDEL', errors, id)
  redis.call('ZREM', retry, id)
end

-- What waits is gone; so is its place among those that a group put off, or it would be woken at a time of before.
local function leave_the_queue(id)
  forgive(id)
  redis.call('HDEL', sole, id)
  redis.call('UNLINK', KEYS[1] .. 'p:' .. id)
  redis.call('ZREM', due, id)
  local group = group_of(id, separator)
  if group then
    redis.call('ZREM', KEYS[1] .. 'k:' .. group, id)
  end
end

local function join_arrivals(id)
  local new = KEYS[1] .. 'n:' .. id
  if track then
    track.merge('m:' .. id, 'n:' .. id)
  end
  redis.call('ZUNIONSTORE', new, 2, new, KEYS[1] .. 'm:' .. id, 'AGGREGATE', 'MIN')
  redis.call('DEL', KEYS[1] .. 'm:' .. id)
  if collapse == 'latest' then
    if track then
      track.only('n:' .. id, redis.call('ZRANGE', new, -1, -1)[1], nil, true)
    end
    redis.call('ZREMRANGEBYRANK', new, 0, -2)
  end
  redis.call('ZADD', next_due, 'LT', as_text(now), id)
end

local function join_waiting(id, was_due)
  local dead = KEYS[1] .. 'm:' .. id
  local alone = not was_due and redis.call('ZCARD', dead) == 1
  if track then
    track.merge('m:' .. id, (alone and 'p:' or 'n:') .. id)
  end
  if alone then
    local only = redis.call('ZRANGE', dead, 0, 0, 'WITHSCORES')
    redis.call('HSET', sole, id, packed(only[2], only[1]))
    redis.call('DEL', dead)
  else
    redis.call('RENAME', dead, KEYS[1] .. 'n:' .. id)
    thaw(id, collapse)
  end
  forgive(id)
  if not was_due or tonumber(was_due) > now then  -- who is overdue keeps its place
    redis.call('ZADD', due, as_text(now), id)
  end
  ring()
end

local acts = {}
-- A removal comes first in each, whether it finds something or not: then a full server lets the rest pass.
function acts.revive(id, in_flight, was_due)
  redis.call('HDEL', reasons, id)
  local some = redis.call('EXISTS', KEYS[1] .. 'm:' .. id) == 1
  if some and track then
    track.all('m:' .. id, 'enqueued', '{"ending":"revived"}')
  end
  if some and in_flight then
    join_arrivals(id)
  elseif some then
    join_waiting(id, was_due)
  end
  redis.call('ZREM', morgue, id)
  return some and 1 or 0
end
function acts.bury(id)
  redis.call('HDEL', reasons, id)
  redis.call('ZREM', morgue, id)
  if track then
    track.all('m:' .. id, 'cancelled', DELETED, true)
  end
  return redis.call('UNLINK', KEYS[1] .. 'm:' .. id)
end
function acts.kill(id, in_flight, was_due)
  if in_flight or not was_due then
    return in_flight and 2 or 0
  end
  redis.call('HDEL', crash, id)
  if track then
    track.all('p:' .. id, 'error', '{"ending":"dead","reason":"killed by hand"}')
    track.merge('p:' .. id, 'm:' .. id, true)
  end
  local single, dead, many = redis.call('HGET', sole, id), KEYS[1] .. 'm:' .. id, KEYS[1] .. 'p:' .. id
  if single then
    redis.call('ZADD', dead, 'LT', score_of(single), body_of(single))
  else
    redis.call('ZUNIONSTORE', dead, 2, dead, many, 'AGGREGATE', 'MIN')
  end
  redis.call('ZADD', morgue, as_text(now), id)
  redis.call('HSET', reasons, id, redis.call('HGET', errors, id) or 'killed by hand')
  leave_the_queue(id)
  return 1
end
function acts.delete(id, in_flight, was_due)
  if in_flight then
    if not failed_only then
      redis.call('UNLINK', KEYS[1] .. 'n:' .. id)
      redis.call('ZREM', next_due, id)
      if track then
        track.all('n:' .. id, 'cancelled', DELETED, true)
      end
    end
    return 2
  end
  if was_due then
    leave_the_queue(id)
    if track then
      track.all('p:' .. id, 'cancelled', DELETED, true)
    end
  end
  return was_due and 1 or 0
end
function acts.run(id, in_flight, was_due)
  if in_flight or not was_due then
    return in_flight and 2 or 0
  end
  if tonumber(was_due) > now then
    moved = moved + 1
    redis.call('ZADD', due, 'XX', as_text(start + moved / 1000000), id)  -- a hair apart: the order stays
    ring()
    if track then
      track.all('p:' .. id, 'enqueued', '{"ending":"staged","reason":"made due by hand"}')
    end
  end
  return 1
end

local ids, places, status = {}, {}, {}
for at = 4, #ARGV do
  ids[at - 3] = ARGV[at]
end
local records, dues = redis.call('HMGET', busy, unpack(ids)), redis.call('ZMSCORE', due, unpack(ids))
for place in ipairs(ids) do
  places[place] = place
end
table.sort(places, function(a, b)
  local first, second = tonumber(dues[a] or 0), tonumber(dues[b] or 0)
  return first < second or (first == second and ids[a] < ids[b])
end)
for _, place in ipairs(places) do
  local id = ids[place]
  if failed_only and not redis.call('ZSCORE', retry, id) then
    status[place] = 0
  else
    local fine, told = pcall(acts[act], id, records[place], redis.call('ZSCORE', due, id))
    status[place] = fine and told or in_words(told)
  end
end
if track then
  track.done()
end
return {status, as_text(start + moved / 1000000)}
