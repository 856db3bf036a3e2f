-- batch_push: push tracked jobs into one queue or the schedule, as members of a batch or of none
-- KEYS queues queue
-- ARGV batch member name lane turn keep (jid when payload detail)*
-- returns how many were pushed (a jid that is a member already is not pushed again), or "ABSENT" no such batch,
--   "CLOSED" it takes no more, "FULL" the history has no room for what must be kept. when: "" now, "+s" in s seconds of
--   the server, else a Unix time; "parked" and one of these: not before the batch is released. member: a job of the
--   batch that has not ended and adds to it though it is closed, or "". detail is JSON for the history. Who pushes
--   through a lane counts its turns: the same turn twice is one push whose answer was lost, and gets that answer.
--   keep: how the history is kept if nobody said so before, "" not at all: then no recorder has led yet.
--   A batch that keeps results also keeps the order of its rows, each with the number of its job's name.
-- include base
-- include keys
-- include batch
local id, name, batches = ARGV[1], ARGV[3], batching()
local facts = key('batch_base') .. id
local jobs, lanes = facts .. ':jobs', facts .. ':lanes'
local now, pushed, keeps_results = server_now(), 0, false
if id ~= '' then
  local before = ARGV[4] ~= '' and redis.call('HGET', lanes, ARGV[4])
  if before and string.match(before, '^%d+') == ARGV[5] then
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

local counts, rows = {}, {}
for at = 7, #ARGV, 4 do
  local jid, when, payload = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local parked = string.sub(when, 1, 6) == 'parked'
  local due = parked and string.sub(when, 7) or when
  local status = parked and 'blocked' or due == '' and 'enqueued' or 'scheduled'
  if id == '' or redis.call('HSETNX', jobs, jid, status) == 1 then
    if parked then
      redis.call('RPUSH', facts .. ':parked',
        string.format('%d %d %d ', #jid, #name, #due) .. jid .. name .. due .. payload)
    elseif due == '' then
      redis.call('LPUSH', KEYS[2], payload)
    else
      local score = string.sub(due, 1, 1) == '+' and now + tonumber(due) or tonumber(due)
      redis.call('ZADD', key('schedule'), as_text(score), payload)
    end
    pushed, counts[status] = pushed + 1, (counts[status] or 0) + 1
    if keeps_results then
      rows[#rows + 1] = number_of(name_of(ARGV[at + 3])) .. ' ' .. jid
    end
    batches.record(jid, id, status, '0', '', ARGV[at + 3])
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
  if ARGV[4] ~= '' then
    redis.call('HSET', lanes, ARGV[4], ARGV[5] .. ' ' .. pushed)
  end
end
batches.flush()
return pushed
