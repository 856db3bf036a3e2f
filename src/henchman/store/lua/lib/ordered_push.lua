-- The push of ordered_push and ordered_push_tracked: rows stand in ARGV behind the first `before`.
local now, collapse, count = server_now(), ARGV[2], (#ARGV - before) / 4
local ids, times, scores, arrival = {}, {}, {}, nil
local ahead = keep_time(now, redis.call('HMGET', meta, 'clock', 'ahead', 'back'))
for i = 1, count do
  local at_row = before + 4 * i
  local when, score = ARGV[at_row - 2], ARGV[at_row - 1]
  local own = now + (i - 1) / 1000000  -- a hair apart: the order of the list stays
  local at = when == '' and own or string.sub(when, 1, 1) == '+' and own + (tonumber(when) or 0 / 0) or tonumber(when)
  score = score == '' and as_text(own + ahead) or score
  local number = tonumber(score)
  if not at or at ~= at or not number or number ~= number then
    return redis.error_reply('ERR row ' .. i .. ': "' .. when .. '" and "' .. score .. '" must be numbers')
  end
  ids[i], times[i], scores[i] = ARGV[at_row - 3], at, score
end
redis.call('SADD', KEYS[2], ARGV[1])
if track then
  redis.call('HSET', meta, 'track', '1')
end
local head = track and '{"class":' .. ARGV[3] .. ',"queue":' .. cjson.encode(ARGV[1]) .. ',"args":['
local function born(i, due_at)  -- the jid of row i, of which the history is told
  local jid = ARGV[4] .. string.format('%06x', i)
  track.born(jid, head, ids[i], ARGV[before + 4 * i], scores[i], now + count / 1000000, due_at)
  return jid
end
if collapse == 'none' then
  arrival = redis.call('HINCRBY', meta, 'arrivals', count) - count
end
local have = redis.call('ZMSCORE', due, unpack(ids))
local seen, dues, singles, known, rings = {}, {}, {}, {}, false
for i = 1, count do
  local id, at, score = ids[i], times[i], scores[i]
  local body = stored(ARGV[before + 4 * i], arrival and arrival + i)
  if have[i] or seen[id] then
    known[#known + 1] = {id, at, score, body, i}
  else
    seen[id] = at
    if track then
      track.join('p:' .. id, body, born(i, at))
    end
    dues[#dues + 1], dues[#dues + 2] = as_text(at), id
    singles[#singles + 1], singles[#singles + 2] = id, packed(score, body)
    rings = rings or at <= now + count / 1000000
  end
end
if collapse == 'latest' and #known > 0 and not track and redis.call('HEXISTS', meta, 'track') == 1 then
  return 'TRACKED'  -- what is replaced has a record
end
if #dues > 0 then
  redis.call('ZADD', due, unpack(dues))
  redis.call('HSET', sole, unpack(singles))
end
local arrived = false
for _, job in ipairs(known) do
  local id, at, score, body, i = job[1], job[2], job[3], job[4], job[5]
  if redis.call('HEXISTS', busy, id) == 1 then
    redis.call('ZADD', next_due, 'NX', as_text(at), id)
    put('n:' .. id, score, body, collapse, track and born(i, at))
    arrived = true
  else
    fold(id, score, body, collapse, track and born(i, tonumber(seen[id] or have[i])))
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
if track then
  track.done()
end
return #dues / 2
