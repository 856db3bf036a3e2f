-- batch_push: push tracked jobs into one queue or the schedule, as members of a batch or of none
-- KEYS queues queue
-- ARGV batch member name lane turn keep (jid when payload detail ask)*
-- returns how many were pushed (a jid that is a member already is not pushed again), or "ABSENT" no such batch,
--   "CLOSED" it takes no more, "FULL" the history has no room for what must be kept. when: "" now, "+s" in s seconds of
--   the server, else a Unix time; "parked" and one of these: not before the batch is released. member: a job of the
--   batch that has not ended and adds to it though it is closed, or "". detail is JSON for the history. Who pushes
--   through a lane counts its turns: the same turn twice is one push whose answer was lost, and gets that answer; an
--   earlier one comes late, after it was sent again, and nobody reads what it gets.
--   keep: how the history is kept if nobody said so before, "" not at all: then no recorder has led yet.
--   A batch that keeps results also keeps the order of its rows, each with the number of its job's name.
--   ask: "", or JSON of jobs with a key, all or none of them: what lib/admit.lua asks, with key and mark of this one. Then
--   the lane is one of all keyed pushes, and the answer that of keyed_push.
-- include base
-- include keys
-- include batch
-- include admit
local id, name, batches = ARGV[1], ARGV[3], batching()
local facts = key('batch_base') .. id
local jobs, lanes = facts .. ':jobs', facts .. ':lanes'
local now, pushed, keeps_results, keyed = server_now(), 0, false, (ARGV[11] or '') ~= ''
local answered = keyed and answered_before(ARGV[4], ARGV[5])
if answered then
  return answered
end
if id ~= '' then
  local before = ARGV[4] ~= '' and redis.call('HGET', lanes, ARGV[4])
  if before and tonumber(string.match(before, '^%d+')) >= tonumber(ARGV[5]) then
    return tonumber(string.match(before, '%d+$'))
  end
  local known = redis.call('HMGET', facts, 'state', 'why', 'expires', 'results')
  keeps_results = known[4] == '1'
  if not known[1] then
    return 'ABSENT'
  end
  local may = known[1] == 'open' or (known[1] == 'closed' and redis.call('HEXISTS', jobs, ARGV[2]) == 1)
  if not may or (known[2] ~= '' and known[2] ~= 'aborted') or now > (tonumber(known[3]) or math.huge) then
    return 'CLOSED'
  end
end
if ARGV[6] ~= '' then
  redis.call('SET', key('history_on'), ARGV[6], 'NX')
end
if batches.is_full() then
  return 'FULL'
end

-- The name of a job: its record begins with it.
local function name_of(detail)
  local plain = string.match(detail, '^{"class":"([^"\\]*)"')
  local fine, record = pcall(cjson.decode, plain and '{}' or detail)
  return plain or (fine and type(record) == 'table' and record.class) or ''
end

-- The number under which the batch knows the name of a job.
local numbers = {}
local function number_of(name)
  if not numbers[name] then
    local number = redis.call('HGET', facts, 'job:' .. name)
    if not number then
      number = redis.call('HINCRBY', facts, 'job_names', 1)
      redis.call('HSET', facts, 'job:' .. name, number)
    end
    numbers[name] = number
  end
  return numbers[name]
end

local counts, rows, answers = {}, {}, {}

-- A job that is new here: it is pushed, unless it was already, or waits; and it is a member.
local function take_in(jid, status, detail)
  pushed, counts[status] = pushed + 1, (counts[status] or 0) + 1
  if keeps_results then
    rows[#rows + 1] = number_of(name_of(detail)) .. ' ' .. jid
  end
  batches.record(jid, id, status, '0', '', detail)
end

local function is_new(jid, status)
  return id == '' or redis.call('HSETNX', jobs, jid, status) == 1
end

local function push_keyed(jid, due, payload, detail, ask)
  local job = {jid = jid, key = ask.key, mark = ask.mark, queue = name, due = due, payload = payload}
  local answer = admit(ask, job, now)
  local status = (due ~= '' or ask.debounce) and 'scheduled' or 'enqueued'
  if string.find(answer, '^B') then
    status = 'blocked'
  end
  if string.find(answer, '^[CB]') and is_new(jid, status) then
    take_in(jid, status, detail)
  end
  return answer
end

local function push_plain(jid, due, payload, detail)
  local status = due == '' and 'enqueued' or 'scheduled'
  if is_new(jid, status) then
    if due == '' then
      redis.call('LPUSH', KEYS[2], payload)
    else
      redis.call('ZADD', key('schedule'), due, payload)
    end
    take_in(jid, status, detail)
  end
end

-- What an atomic batch has parked meets its key when the batch is released.
local function park_in_batch(jid, when, payload, detail, ask)
  local due = ask == '' and when or when .. '\n' .. ask
  if is_new(jid, 'blocked') then
    redis.call('RPUSH', facts .. ':parked',
      string.format('%d %d %d ', #jid, #name, #due) .. jid .. name .. due .. payload)
    take_in(jid, 'blocked', detail)
  end
end

redis.call('LLEN', KEYS[2])  -- a key that holds something else refuses here, before anybody is a member
redis.call('ZCARD', key('schedule'))
for at = 7, #ARGV, 5 do
  local jid, when, payload, detail, asked = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local answer, ask = 'C', keyed and cjson.decode(asked)
  if string.sub(when, 1, 6) == 'parked' then
    park_in_batch(jid, string.sub(when, 7), payload, detail, asked)
  elseif not keyed then
    push_plain(jid, as_due(when, now), payload, detail)
  elseif id == '' or redis.call('HEXISTS', jobs, jid) == 0 then
    answer = push_keyed(jid, as_due(when, now), payload, detail, ask)
  end
  answers[#answers + 1] = answer
  if keyed and ends_call(ask, answer) then
    break
  end
end
if pushed > 0 then
  redis.call('SADD', KEYS[1], name)
end
for first = 1, #rows, 1000 do
  redis.call('RPUSH', facts .. ':rows', unpack(rows, first, math.min(first + 999, #rows)))
end
if id ~= '' then
  redis.call('HINCRBY', facts, 'total', pushed)
  for status, count in pairs(counts) do
    redis.call('HINCRBY', facts, 'n:' .. status, count)
  end
  if ARGV[4] ~= '' and not keyed then
    redis.call('HSET', lanes, ARGV[4], ARGV[5] .. ' ' .. pushed)
  end
end
batches.flush()
return keyed and answer_lane(ARGV[4], ARGV[5], answers) or pushed
