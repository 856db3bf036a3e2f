-- ordered_move: move ids that wait from one ordered queue to another, with payloads, scores, times, counts and errors
-- KEYS queues
-- ARGV queue source collapse skip most (id)*
-- returns {moved, left, in_flight}, or {moved, left, in_flight, begun}: how many ids were moved, how many still wait in the source, and which were skipped
--   because they are in flight in one of the two. queue is the target. Without ids, the next most that are
--   due, after the first skip ones (those that were skipped before); fewer when they have many payloads, or 4 MB of them.
--   Of an id with very many a part is moved, lowest scores first: it is begun, nobody takes it for a minute, and another
--   call for it goes on. Where an id
--   waits in the target too, its payloads merge by collapse; of two that failed the one with the higher count gives
--   time, count and error, else the one that failed, else the earlier time counts.
-- include base
-- include keys
-- include ordered
-- include ordered_track
local collapse, most, moved, in_flight, size = ARGV[3], tonumber(ARGV[5]), 0, {}, 0
local source = key('ordered') .. ARGV[2] .. '/'
local from_due, from_one, from_busy = source .. 'due', source .. 'one', source .. 'busy'
local from_retry, from_errors, from_crash = source .. 'retry', source .. 'err', source .. 'crash'
local moving = base .. 'moving'
local separator = redis.call('HGET', meta, 'separator')
local from_settings = redis.call('HMGET', source .. 'meta', 'separator', 'track')
local from_separator = from_settings[1]
redis.call('SADD', key('ordered_queues'), queue)  -- a full server refuses here, before anything has moved
if from_settings[2] then
  redis.call('HSET', meta, 'track', '1')
end
track = (from_settings[2] or redis.call('HEXISTS', meta, 'track') == 1) and tracking()
local now = server_now()

-- Of an id with more than MOST payloads PART go at a time.
local one_by_one = track or collapse == 'latest'
local MOST, PART = one_by_one and 2000 or 10000, one_by_one and 500 or 2500

-- (payload, score, payload, score, …) of an id of the source, as they were pushed, their jids, and whether these are all.
-- If not, they are PART at most.
local function payloads_of(id, limit)
  local single, pile = redis.call('HGET', from_one, id), source .. 'p:' .. id
  local many = redis.call('ZCARD', pile)
  local flat, count = nil, 1
  if single then
    flat, read_bytes = {body_of(single), score_of(single)}, read_bytes + #single
  else
    flat, count = some_of(pile, many > limit and PART or many, 1)
  end
  local bodies = {}
  for i = 1, #flat, 2 do
    bodies[(i + 1) / 2] = flat[i]
    flat[i] = plain(flat[i])
  end
  return flat, track and track.jids_of(source .. 'jp:' .. id, bodies) or {}, single or count == many
end

-- When an id is due that stands in `due` at `at`: one that its group put off is that again, as before.
local function time_of(aside, id, at)
  local before = at and redis.call('ZSCORE', aside, id)
  if before then
    redis.call('ZREM', aside, id)
  end
  return before or at
end

local function add_payloads(id, flat, jids, later)
  local failed = redis.call('ZSCORE', from_retry, id)
  local arrival = collapse == 'none' and redis.call('HINCRBY', meta, 'arrivals', #flat / 2) - #flat / 2
  if #flat > 100 and not track and collapse ~= 'latest' then
    local single = redis.call('HGET', sole, id)
    if single then
      redis.call('HDEL', sole, id)
      redis.call('ZADD', base .. 'p:' .. id, score_of(single), body_of(single))
    end
    for i = 1, #flat, 2 do
      flat[i] = stored(flat[i], arrival and arrival + (i + 1) / 2)
    end
    redis.call('ZADD', due, 'NX', 'inf', id)
    return add_all('p:' .. id, flat)
  end
  for i = 1, #flat, 2 do
    local body, jid = stored(flat[i], arrival and arrival + (i + 1) / 2), jids[(i + 1) / 2] or nil
    if jid then
      track.moved(jid, failed, queue, later)
    end
    if redis.call('ZSCORE', due, id) then
      merge(id, flat[i + 1], body, collapse, jid)
    else
      redis.call('ZADD', due, 'inf', id)
      redis.call('HSET', sole, id, packed(flat[i + 1], body))
      if jid then
        track.join('p:' .. id, body, jid)
      end
    end
  end
end

-- What becomes of time, count, error and deaths of an id that comes with `at` and had waited for `was`, or nil.
local function add_state(id, at, was)
  local count, here = redis.call('ZSCORE', from_retry, id), redis.call('ZSCORE', retry, id)
  local crashes = tonumber(redis.call('HGET', from_crash, id) or '0')
  if count and (not here or tonumber(count) > tonumber(here)) then
    redis.call('ZADD', retry, count, id)
    redis.call('HSET', errors, id, redis.call('HGET', from_errors, id) or '')
  elseif was and (here or tonumber(was) < tonumber(at)) then
    at = was
  end
  redis.call('ZADD', due, at, id)
  if crashes > tonumber(redis.call('HGET', crash, id) or '0') then
    redis.call('HSET', crash, id, crashes)
  end
end

local function leave_source(id)
  redis.call('ZREM', from_due, id)
  redis.call('HDEL', from_one, id)
  redis.call('DEL', source .. 'p:' .. id)
  redis.call('DEL', source .. 'jp:' .. id)
  redis.call('ZREM', from_retry, id)
  redis.call('HDEL', from_errors, id)
  redis.call('HDEL', from_crash, id)
end

-- A part of what waits under an id is in the target. Its time there was settled with the first part; until the last has
-- come nobody takes it, here or there, unless whoever moves it is gone.
local function move_part(id, flat, jids, at, was)
  local count = #flat / 2
  local first = redis.call('HEXISTS', moving, id) == 0
  add_payloads(id, flat, jids, tonumber(at) > now)
  redis.call('ZREMRANGEBYRANK', source .. 'p:' .. id, 0, count - 1)
  if first then
    add_state(id, at, was)
    redis.call('HSET', moving, id, redis.call('ZSCORE', due, id))
  end
  redis.call('ZADD', from_due, 'XX', as_text(now + 60), id)
  redis.call('ZADD', due, 'XX', as_text(now + 60), id)
end

local ids, begun = {unpack(ARGV, 6)}, nil
if #ids == 0 then
  local skip = tonumber(ARGV[4])
  ids = redis.call('ZRANGE', from_due, skip, skip + most - 1)
end
for _, id in ipairs(ids) do
  local at = redis.call('ZSCORE', from_due, id)
  if at and not begun and size < MOST and read_bytes < MOST_BYTES then
    if redis.call('HEXISTS', from_busy, id) == 1 or redis.call('HEXISTS', busy, id) == 1 then
      in_flight[#in_flight + 1] = id
    else
      local was, settled = redis.call('ZSCORE', due, id), redis.call('HGET', moving, id)
      at = time_of(source .. 'k:' .. (group_of(id, from_separator) or ''), id, at)
      was = time_of(base .. 'k:' .. (group_of(id, separator) or ''), id, was)
      local flat, jids, whole = payloads_of(id, settled and PART or MOST)
      if not whole then
        begun = id
        move_part(id, flat, jids, at, was)
      else
        if #flat > 0 then
          add_payloads(id, flat, jids, tonumber(at) > now)
          add_state(id, at, was)
        end
        if settled then
          redis.call('HDEL', moving, id)
          redis.call('ZADD', due, 'XX', settled, id)
        end
        leave_source(id)
        moved, size = moved + 1, size + #flat / 2
      end
    end
  end
end
if moved > 0 then
  ring()
end
if track then
  track.done()
end
return {moved, redis.call('ZCARD', from_due) - redis.call('HLEN', from_busy), in_flight, begun}
