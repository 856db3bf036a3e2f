-- ordered_push: put payloads under their ids
-- KEYS base ordered
-- ARGV queue collapse (id when score payload)*
-- returns how many of the ids had nothing waiting before. when: "" now, "+s" in s seconds, else a Unix time; it
--   counts for an id that has nothing waiting, others keep theirs. score: a number, or "" for the server's time.
--   collapse: min (equal payloads are one, the lower score stays), latest (the highest score alone stays), none.
--   The payloads of an id in flight are not touched: what arrives meanwhile stands apart, see ordered_settle.
-- include now
-- include ordered
local now, collapse, count = server_now(), ARGV[2], (#ARGV - 2) / 4
redis.call('SADD', KEYS[2], ARGV[1])
local ids, arrival = {}, 0
for i = 1, count do
  ids[i] = ARGV[4 * i - 1]
end
if collapse == 'none' then
  arrival = redis.call('HINCRBY', meta, 'arrivals', count) - count
end
local have = redis.call('ZMSCORE', due, unpack(ids))
local seen, dues, singles, known, rings = {}, {}, {}, {}, false
for i = 1, count do
  local id, when, score, body = ids[i], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local own = now + (i - 1) / 1000000  -- a hair apart: the order of the list stays
  local at = when == '' and own or string.sub(when, 1, 1) == '+' and own + tonumber(when) or tonumber(when)
  if score == '' then
    score = as_text(own)
  end
  if collapse == 'none' then
    body = '\0' .. struct.pack('>d', arrival + i) .. body
  end
  if have[i] or seen[id] then
    known[#known + 1] = {id, at, score, body}
  else
    seen[id] = true
    dues[#dues + 1], dues[#dues + 2] = as_text(at), id
    singles[#singles + 1], singles[#singles + 2] = id, packed(score, body)
    rings = rings or at <= own
  end
end
if #dues > 0 then
  redis.call('ZADD', due, unpack(dues))
  redis.call('HSET', one, unpack(singles))
end
for _, job in ipairs(known) do
  local id, at, score, body = job[1], job[2], job[3], job[4]
  if redis.call('HEXISTS', busy, id) == 1 then
    redis.call('ZADD', next_due, 'NX', as_text(at), id)
    redis.call('ZADD', KEYS[1] .. 'n:' .. id, 'LT', score, body)
    trim_to_newest('n:' .. id, collapse)
  else
    fold(id, score, body, collapse)
  end
end
if not rings and #dues > 0 then  -- a new head of the queue: a sleeper has to set its clock anew
  rings = seen[redis.call('ZRANGE', due, 0, 0)[1]]
end
if rings then
  ring()
end
return #dues / 2
