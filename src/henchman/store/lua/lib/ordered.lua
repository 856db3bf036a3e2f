-- What every script of an ordered queue shares: ARGV[1] is the name of the queue. store/keys.py tells what hangs on the
-- base of its keys. An id has payloads if, and only if, it stands in `due`, whose score is the next moment at which
-- somebody may take it; while it is in flight, the moment at which somebody looks whether its holder still lives.
local queue, base = ARGV[1], key('ordered') .. ARGV[1] .. '/'
local due, sole, busy = base .. 'due', base .. 'one', base .. 'busy'
local next_due, retry, errors, crash = base .. 'next', base .. 'retry', base .. 'err', base .. 'crash'
local meta, stat, wake, open = base .. 'meta', base .. 'stat', base .. 'wake', base .. 'open'
local room  -- payloads that this call may still bring from one pile to another; see may_release
local read_bytes, moved_part = 0, false  -- bytes of payloads read by this call; whether a part of a pile has moved
local track  -- of a tracked queue: who writes down what becomes of its payloads, see lib/ordered_track.lua

local function ring()  -- one marker, however often: it wakes one sleeper
  redis.call('ZADD', wake, 0, '0')
end

-- A payload that stands alone is kept with its score before it, 8 bytes, big end first.
local function packed(score, body)
  return struct.pack('>d', tonumber(score)) .. body
end
local function score_of(single)
  return string.format('%.17g', (struct.unpack('>d', single)))
end
local function body_of(single)
  return string.sub(single, 9)
end

-- Where equal payloads are kept apart, each has the number of its arrival before it; and so has one that begins with
-- that mark by itself.
local function stored(body, arrival)
  if arrival or string.byte(body) == 0 then
    return '\0' .. struct.pack('>d', arrival or 0) .. body
  end
  return body
end
local function plain(body)
  return string.byte(body) == 0 and string.sub(body, 10) or body
end

-- One value longer than 64 bytes keeps a hash from being a list inside, in which every look is a walk: with hundreds of
-- ids in flight that was most of the cost of a claim.
local WIDE = string.rep(' ', 65)

-- The record of an id in flight: token|delivered|due|identity; delivered is 0 for a payload that stood alone.
-- Nothing of a record that is not there.
local function read_record(record)
  if record then
    local token, delivered, was_due, identity = string.match(record, '^(%d+)|(%d+)|([^|]*)|(%S*)')
    return token, tonumber(delivered), was_due, identity
  end
end

-- The server's clock may go back. `clock` in meta is how far it had come, to a tenth of a second, for whoever pushes or
-- claims. When it has gone back, what was due by then is due now, in its order, and ids that failed wait as long as was
-- meant, a page of them in each call; times that a user gave, and delays, stay. Scores that we give go on rising:
-- `ahead`, which is given back, is added to them. `told`: clock, ahead and what is left to do, from meta.
local SLACK, MOVES = 0.2, 1000

-- The times of a set from `from` (with a bracket: behind it) up to `before` go back, a page of them; where the next page
-- begins, nil after the last. When to look after an id in flight stays: a claim would put that off again and again.
local function page_back(set, from, by, before)
  local found = redis.call('ZRANGEBYSCORE', base .. set, from, as_text(before), 'WITHSCORES', 'LIMIT', 0, MOVES)
  local names, moved = {}, false
  for i = 1, #found, 2 do
    names[#names + 1] = found[i]
  end
  local held = set == 'due' and #names > 0 and redis.call('HMGET', busy, unpack(names)) or {}
  for place, id in ipairs(names) do
    if not held[place] then
      redis.call('ZADD', base .. set, as_text(found[2 * place] - by), id)
      moved = true
    end
  end
  local passed = found[2] == found[#found] and not moved  -- many of one time, of which the last may lie on the next page
  return #names == MOVES and (passed and '(' or '') .. found[#found] or nil
end

-- The same of ids that failed and are due later than `before`; true when that was the last page. `failed` in meta: the
-- count and the id that the page before ended with.
local function failed_back(by, before)
  local count, last = string.match(redis.call('HGET', meta, 'failed') or '', '^(%S+) (.*)$')
  local rank = 0
  if last then  -- it may be gone, but its place is found
    local added = redis.call('ZADD', retry, 'NX', count, last .. '\0')
    rank = redis.call('ZRANK', retry, last .. '\0')
    if added == 1 then
      redis.call('ZREM', retry, last .. '\0')
    end
  end
  local found = redis.call('ZRANGE', retry, rank, rank + MOVES - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local at = tonumber(redis.call('ZSCORE', due, found[i]) or '0')
    if at > before and at < math.huge then
      redis.call('ZADD', due, as_text(at - by), found[i])
    end
  end
  if #found < 2 * MOVES then
    return true
  end
  redis.call('HSET', meta, 'failed', found[#found] .. ' ' .. found[#found - 1])
end

local function keep_time(now, told)
  local clock, ahead = tonumber(told[1]), tonumber(told[2] or '0')
  local by, before, from = string.match(told[3] or '', '^(%S+) (%S+) ?(%S*)$')
  by, before = tonumber(by), tonumber(before)
  if not clock or now - clock > 0.1 then
    redis.call('HSET', meta, 'clock', as_text(now))
  elseif clock - now > 0.001 then
    local step = clock + SLACK - now
    before, by, from = math.max(clock + SLACK, before or 0), math.max(step, by or 0), nil  -- an earlier step may be left
    ahead = ahead + step
    redis.call('HSET', meta, 'clock', as_text(now), 'ahead', as_text(ahead))
    redis.call('HDEL', meta, 'failed')
  end
  if not by then
    return ahead
  end
  local later = page_back('due', from and from ~= '' and from or '(' .. as_text(now), by, before)
  if later or page_back('next', '(' .. as_text(now), by, before) or not failed_back(by, before) then
    redis.call('HSET', meta, 'back', as_text(by) .. ' ' .. as_text(before) .. ' ' .. (later or '(' .. as_text(before)))
    return ahead
  end
  redis.call('HDEL', meta, 'back', 'failed')
  ring()
  return ahead
end

-- Put a payload into a set: of equal ones the lower score stays. With `latest` the highest score alone stays, and of
-- two that are the same the one that came later. `jid` names its record, where it has one.
local function put(set, score, body, collapse, jid)
  if collapse == 'latest' then
    local newest = redis.call('ZRANGE', base .. set, -1, -1, 'WITHSCORES')
    local older = newest[1] and tonumber(newest[2]) > tonumber(score)
    if track then
      track.only(set, older and newest[1] or body, jid, older)
    end
    if older then
      score, body = newest[2], newest[1]
    end
    redis.call('UNLINK', base .. set)
  elseif track then
    track.join(set, body, jid)
  end
  redis.call('ZADD', base .. set, 'LT', score, body)
end

-- Add a payload to what waits under an id that is not in flight.
local function merge(id, score, body, collapse, jid)
  local single = redis.call('HGET', sole, id)
  if not single then
    return put('p:' .. id, score, body, collapse, jid)
  end
  local older = tonumber(score) < tonumber(score_of(single))
  if track and collapse == 'latest' then
    track.only('p:' .. id, older and body_of(single) or body, jid, older)
  elseif track then
    track.join('p:' .. id, body, jid)
  end
  if collapse == 'latest' then
    if not older then
      redis.call('HSET', sole, id, packed(score, body))
    end
  elseif body_of(single) ~= body then
    redis.call('ZADD', base .. 'p:' .. id, score_of(single), body_of(single), score, body)
    redis.call('HDEL', sole, id)
  elseif older then
    redis.call('HSET', sole, id, packed(score, body))
  end
end

-- The lowest payloads of a pile (a whole key), or the highest with `from_end`, with their scores: as many as `most` and
-- the bytes of a call allow, at least `least`; and how many these are.
-- include page
local function some_of(pile, most, least, from_end)
  local flat, count, bytes = page_of(function(place, many)
    if from_end then
      return redis.call('ZRANGE', pile, place, place + many - 1, 'REV', 'WITHSCORES')
    end
    return redis.call('ZRANGE', pile, place, place + many - 1, 'WITHSCORES')
  end, most, least, 2, read_bytes)
  read_bytes = bytes
  return flat, count
end

-- Payloads with their scores, as ZRANGE gives them, into a pile: of equal ones the lower score stays.
local function add_all(set, flat)
  for first = 1, #flat, 998 do
    local some, n = {}, 0
    for at = first, math.min(first + 997, #flat), 2 do
      some[n + 1], some[n + 2], n = flat[at + 1], flat[at], n + 2
    end
    redis.call('ZADD', base .. set, 'LT', unpack(some))
  end
end

-- Two piles become one, `to`: the smaller one moves, so that the cost is not that of what merely waits; or `from`, if it
-- is known to be `small`.
local function unite(from, to, small_from)
  local source, target = base .. from, base .. to
  if redis.call('EXISTS', target) == 0 then
    return redis.call('RENAME', source, target)
  end
  local more = not small_from and redis.call('ZCARD', source) > redis.call('ZCARD', target)
  local small, large = more and to or from, more and from or to
  add_all(large, redis.call('ZRANGE', base .. small, 0, -1, 'WITHSCORES'))
  redis.call('UNLINK', base .. small)
  if more then
    redis.call('RENAME', source, target)
  end
end

local function room_left()
  room = room or (track and 500 or 2500)
  return room
end

local function are_small(pile, many)  -- whether these highest payloads of a pile may move with this call, by their bytes
  local _, count = some_of(pile, many, 0, true)
  return count == many
end

-- Whether what arrived under a held id and what will be left of it may become one now. Not if both are so many that
-- this would hold the server up: then the last of what is left joins what arrived, as many as one call may bring, and
-- the id stays held; whoever wants it free asks again.
local function may_release(id, delivered)
  local remaining, new = base .. 'p:' .. id, base .. 'n:' .. id
  local left, arrived = redis.call('ZCARD', remaining) - delivered, redis.call('ZCARD', new)
  local few = math.min(left, arrived)
  if few <= 0 then
    return true
  end
  local new_is_small = few <= room_left() and (arrived > left + delivered or are_small(new, arrived))  -- either may be the one that moves
  if new_is_small and (arrived <= left or are_small(remaining, left)) then
    room = room - few
    return true
  end
  if room > 0 then
    local last, count = some_of(remaining, math.min(room, left), moved_part and 0 or 1, true)
    if track then
      track.move_records('p:' .. id, 'n:' .. id, last, true)
    end
    add_all('n:' .. id, last)
    redis.call('ZREMRANGEBYRANK', remaining, -count, -1)
    room, moved_part = 0, true
  end
  return false
end

-- What arrived while the id was in flight joins what is left of it. The id must be in `next`. Who cannot know how the
-- queue collapses leaves that out: `meta` has it from the push. `few`: what arrived is known to be little.
local function release_arrivals(id, collapse, few)
  local new, remaining, single = base .. 'n:' .. id, base .. 'p:' .. id, redis.call('HGET', sole, id)
  redis.call('ZREM', next_due, id)
  if (collapse or redis.call('HGET', meta, 'collapse')) == 'latest' then
    local newest = redis.call('ZRANGE', new, -1, -1, 'WITHSCORES')
    redis.call('UNLINK', new)
    return merge(id, newest[2], newest[1], 'latest', track and track.take_newest('n:' .. id, newest[1]))
  end
  if track then
    track.merge('n:' .. id, 'p:' .. id)
  end
  if single then
    redis.call('ZADD', new, 'LT', score_of(single), body_of(single))
    redis.call('HDEL', sole, id)
    redis.call('RENAME', new, remaining)
  elseif redis.call('EXISTS', remaining) == 1 then
    unite('n:' .. id, 'p:' .. id, few)
  else
    redis.call('RENAME', new, remaining)
  end
end

-- Groups: an id is <group><separator><rest>; at most so many ids of a group are in flight. `g:` holds those, `k:` the
-- ids that were put off, by the time they were due.
local function group_of(id, separator)
  local at = separator and separator ~= '' and string.find(id, separator, 1, true)
  return at and string.sub(id, 1, at - 1)
end
local function leave_group(id, separator)
  local group = group_of(id, separator)
  if not group then
    return
  end
  redis.call('ZREM', base .. 'g:' .. group, id)
  while true do
    local put_off = redis.call('ZPOPMIN', base .. 'k:' .. group)
    if not put_off[1] then
      return
    end
    if redis.call('ZSCORE', due, put_off[1]) and redis.call('HEXISTS', busy, put_off[1]) == 0 then
      local now = server_now()  -- it had been due before it was put off, whatever the clock says since
      redis.call('ZADD', due, 'XX', tonumber(put_off[2]) > now and as_text(now) or put_off[2], put_off[1])
      return ring()
    end
  end
end

-- A claim is over: its place under the ceiling of the queue is free.
local function leave_ceiling(token, identity)
  if redis.call('ZREM', open, token .. '|' .. identity) == 1 then
    ring()
  end
end
