-- ordered_push: put payloads under their ids
-- KEYS queues
-- ARGV queue collapse class seed keep (id when score payload)*
-- returns how many of the ids had nothing waiting before; an error, with nothing changed, when a time or a score is no
--   number. when: "" now, "+s" in s seconds, else a Unix time; it counts for an id that has nothing waiting, others
--   keep theirs. score: a number, or "" for the server's time. collapse: min (equal payloads are one, the lower score
--   stays), latest (the highest score alone stays), none (each is kept, equal scores in the order they came).
--   The payloads of an id in flight are not touched: what arrives meanwhile stands apart, see ordered_settle.
--   class: of a tracked queue, JSON, else "". Then each payload has a record, whose jid is seed and the number of its row in
--   six hex digits; keep: how the history is kept if no process said so before, "" not at all; what merges has a record too,
--   which ends at once; "FULL", with nothing pushed: the history has no room for what must be kept. "TRACKED", with
--   nothing pushed: a payload that has a record would be replaced by one without.
-- include base
-- include keys
-- include ordered
-- include ordered_track
local collapse, class, seed, keep = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local before = 5
if class ~= '' then
  track = tracking()
  if keep ~= '' then
    redis.call('SET', key('history_on'), keep, 'NX')
  end
  if track.is_full() then
    return 'FULL'
  end
end
local now, count = server_now(), (#ARGV - before) / 4
local ids, times, scores, arrival = {}, {}, {}, nil
local settings = redis.call('HMGET', meta, 'clock', 'ahead', 'back', 'collapse')
local ahead = keep_time(now, settings)
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
redis.call('SADD', key('ordered_queues'), queue)
if track then
  redis.call('HSET', meta, 'track', '1')
end
local head = track and '{"class":' .. class .. ',"queue":' .. cjson.encode(queue) .. ',"args":['
local function begin_record(i, due_at)  -- the jid of row i, of which the history is told
  local jid = seed .. string.format('%06x', i)
  track.begin(jid, head, ids[i], ARGV[before + 4 * i], scores[i], now + count / 1000000, due_at)
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
      track.join('p:' .. id, body, begin_record(i, at))
    end
    dues[#dues + 1], dues[#dues + 2] = as_text(at), id
    singles[#singles + 1], singles[#singles + 2] = id, packed(score, body)
    rings = rings or at <= now + count / 1000000
  end
end
if collapse == 'latest' and #known > 0 and not track and redis.call('HEXISTS', meta, 'track') == 1 then
  return 'TRACKED'  -- what is replaced has a record
end
if (settings[4] or 'min') ~= collapse then  -- for scripts that bring payloads together without knowing the queue
  redis.call('HSET', meta, 'collapse', collapse)
end
if #dues > 0 then
  redis.call('ZADD', due, unpack(dues))
  redis.call('HSET', sole, unpack(singles))
end
for _, job in ipairs(known) do
  local id, at, score, body, i = job[1], job[2], job[3], job[4], job[5]
  if redis.call('HEXISTS', busy, id) == 1 then
    redis.call('ZADD', next_due, 'NX', as_text(at), id)
    put('n:' .. id, score, body, collapse, track and begin_record(i, at))
  else
    merge(id, score, body, collapse, track and begin_record(i, tonumber(seen[id] or have[i])))
  end
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
