-- outbox_push: push rows of the outbox, each once: `sent` holds those that were pushed before
-- KEYS queues relay sent
-- ARGV token keep (jid line name when payload batch member detail)*
-- returns "FENCED" when the relay's lease has another token, else for each row 1 pushed, 0 it was pushed before, or why
--   it was not: "FULL" the history has no room, "ABSENT" or "CLOSED" its batch takes no job, "LINE" a row before it on
--   its line was not pushed, else the server's words. when: "" now, "+s" in s seconds of the server, else a Unix time;
--   "parked" and one of these: not before the batch is released. detail: JSON for the history; "" of a job that is not
--   tracked. keep: how the history is kept if nobody said so before. A full server refuses the first write, and with it
--   the whole call.
-- include base
-- include keys
-- include batch
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 'FENCED'
end
local batches, now, known_queues, stopped = batching(), server_now(), {}, {}
local answers = {}

-- "ABSENT" or "CLOSED" when the batch takes no job of `member`.
local function refusal_of(id, member)
  local facts = key('batch_base') .. id
  local known = redis.call('HMGET', facts, 'state', 'why', 'expires')
  if not known[1] then
    return 'ABSENT'
  end
  local may = known[1] == 'open' or (known[1] == 'closed' and redis.call('HEXISTS', facts .. ':jobs', member) == 1)
  if not may or (known[2] ~= '' and known[2] ~= 'aborted') or now > (tonumber(known[3]) or math.huge) then
    return 'CLOSED'
  end
end

local function place(id, jid, name, when, payload)
  local parked = string.sub(when, 1, 6) == 'parked'
  local due = parked and string.sub(when, 7) or when
  if parked then
    redis.call('RPUSH', key('batch_base') .. id .. ':parked',
      string.format('%d %d %d ', #jid, #name, #due) .. jid .. name .. due .. payload)
    return 'blocked'
  end
  if due == '' then
    redis.call('LPUSH', key('queue_prefix') .. name, payload)
    if not known_queues[name] then
      redis.call('SADD', key('queues'), name)
      known_queues[name] = true
    end
    return 'enqueued'
  end
  local score = string.sub(due, 1, 1) == '+' and now + tonumber(due) or tonumber(due)
  redis.call('ZADD', key('schedule'), as_text(score), payload)
  return 'scheduled'
end

-- Bring the job of one row into the world; why not, if it is refused. Whatever decides about a push before it happens
-- (business keys, dependencies) is to be asked here, first.
local function admit(jid, name, when, payload, id, member, detail)
  if detail == '' then
    place('', jid, name, when, payload)
    return
  end
  if ARGV[2] ~= '' then
    redis.call('SET', key('history_on'), ARGV[2], 'NX')
  end
  if batches.is_full() then
    return 'FULL'
  end
  local facts = key('batch_base') .. id
  if id ~= '' then
    local refusal = refusal_of(id, member)
    if refusal or redis.call('HEXISTS', facts .. ':jobs', jid) == 1 then
      return refusal
    end
  end
  local status = place(id, jid, name, when, payload)
  if id ~= '' then
    redis.call('HSET', facts .. ':jobs', jid, status)
    redis.call('HINCRBY', facts, 'total', 1)
    redis.call('HINCRBY', facts, 'n:' .. status, 1)
  end
  batches.record(jid, id, status, '0', '', detail)
end

for at = 3, #ARGV, 8 do
  local jid, line, answer = ARGV[at], ARGV[at + 1], 1
  if redis.call('SISMEMBER', KEYS[3], jid) == 1 then
    answer = 0
  elseif line ~= '' and stopped[line] then
    answer = 'LINE'
  else
    redis.call('SADD', KEYS[3], jid)
    local fine, said = pcall(admit, jid, unpack(ARGV, at + 2, at + 7))
    if not fine or said then
      redis.call('SREM', KEYS[3], jid)
      answer, stopped[line] = fine and said or in_words(said), true
    end
  end
  answers[#answers + 1] = answer
end
batches.flush()
return answers
