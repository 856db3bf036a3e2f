-- ordered_push: put payloads under their ids
-- KEYS base ordered_queues
-- ARGV queue collapse (id when score payload)*
-- returns how many of the ids had nothing waiting before; an error, with nothing changed, when a time or a score is no
--   number. when: "" now, "+s" in s seconds, else a Unix time; it counts for an id that has nothing waiting, others
--   keep theirs. score: a number, or "" for the server's time. collapse: min (equal payloads are one, the lower score
--   stays), latest (the highest score alone stays), none (each is kept, equal scores in the order they came).
--   The payloads of an id in flight are not touched: what arrives meanwhile stands apart, see ordered_settle.
-- include now
-- include ordered
local now, collapse, count = server_now(), ARGV[2], (#ARGV - 2) / 4
local ids, times, scores, arrival = {}, {}, {}, nil
for i = 1, count do
  local when, score = ARGV[4 * i], ARGV[4 * i + 1]
  local own = now + (i - 1) / 1000000  -- a hair apart: the order of the list stays
  local at = when == '' and own or string.sub(when, 1, 1) == '+' and own + (tonumber(when) or 0 / 0) or tonumber(when)
  score = score == '' and as_text(own) or score
  local number = tonumber(score)
  if not at or at ~= at or not number or number ~= number then
    return redis.error_reply('ERR row ' .. i .. ': "' .. when .. '" and "' .. score .. '" must be numbers')
  end
  ids[i], times[i], scores[i] = ARGV[4 * i - 1], at, score
end
redis.call('SADD', KEYS[2], ARGV[1])
if collapse == 'none' then
  arrival = redis.call('HINCRBY', meta, 'arrivals', count) - count
end
local have = redis.call('ZMSCORE', due, unpack(ids))
local seen, dues, singles, known, rings = {}, {}, {}, {}, false
for i = 1, count do
  local id, at, score = ids[i], times[i], scores[i]
  local body = stored(ARGV[4 * i + 2], arrival and arrival + i)
  if have[i] or seen[id] then
    known[#known + 1] = {id, at, score, body}
  else
    seen[id] = true
    dues[#dues + 1], dues[#dues + 2] = as_text(at), id
    singles[#singles + 1], singles[#singles + 2] = id, packed(score, body)
    rings = rings or at <= now + count / 1000000
  end
end
if #dues > 0 then
  redis.call('ZADD', due, unpack(dues))
  redis.call('HSET', one, unpack(singles))
end
local arrived = false
for _, job in ipairs(known) do
  local id, at, score, body = job[1], job[2], job[3], job[4]
  if redis.call('HEXISTS', busy, id) == 1 then
    redis.call('ZADD', next_due, 'NX', as_text(at), id)
    put('n:' .. id, score, body, collapse)
    arrived = true
  else
    fold(id, score, body, collapse)
  end
end
if arrived then  -- for those who thaw it without knowing the queue
  redis.call('HSET', meta, 'collapse', collapse)
end
if not rings and #dues > 0 then  -- a new head of the queue: a sleeper has to set its clock anew
  rings = seen[redis.call('ZRANGE', due, 0, 0)[1]]
end
if rings then
  ring()
end
return #dues / 2
