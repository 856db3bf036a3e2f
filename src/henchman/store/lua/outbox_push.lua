-- outbox_push: push rows of the outbox, each once: `sent` holds those that were pushed before
-- KEYS queues relay sent duplicates
-- ARGV token keep (jid line name when payload batch member detail ask)*
-- returns "FENCED" when the relay's lease has another token, else for each row 1 pushed, 0 it was pushed before, or why
--   it was not: "FULL" the history has no room, "ABSENT" or "CLOSED" its batch takes no job, "LINE" a row before it on
--   its line was not pushed, else the server's words; of a row with a key that another job has {the answer of
--   lib/admit.lua}: it was pushed too, and `duplicates` counts it. when: "" now, "+s" in s seconds of the server, else a
--   Unix time; "parked" and one of these: not before the batch is released. detail: JSON for the history; "" of a job
--   that is not tracked. ask: as in batch_push; then the payload has no time at which it enters its queue. keep: how the
--   history is kept if nobody said so before. A full server refuses the first write, and with it the whole call.
-- include base
-- include keys
-- include members
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 'FENCED'
end
local batches, now, answers, stopped_lines = batching(), server_now(), {}, {}
local intake = taking_in(batches, now)

-- Bring the job of one row into the world: the answer of `admit`; why not, if it is refused.
local function push_row(jid, name, when, payload, id, member, detail, asked)
  local job = {jid = jid, queue = name, when = when, payload = payload, unstamped = asked ~= ''}
  if detail == '' then
    return intake.push(job, asked)
  end
  if ARGV[2] ~= '' then
    redis.call('SET', key('history_on'), ARGV[2], 'NX')
  end
  if batches.is_full() then
    return nil, 'FULL'
  end
  local refusal = id ~= '' and intake.refusal_of(id, member)
  if refusal then
    return nil, refusal
  end
  return intake.take(id, job, detail, asked)
end

-- Another job has the key of a row, which is done with: it is counted, and the record of the job says so. A row that
-- meets itself was pushed before, and the server has forgotten that.
local function is_duplicate(answer, jid, detail)
  local holder = string.match(answer, '^[DRP] (%S+)')
  if not holder or holder == jid then
    return false
  end
  redis.call('INCR', KEYS[4])
  if detail ~= '' then
    batches.record(jid, '', 'cancelled', '0', '',
      string.sub(detail, 1, -2) .. ',"ending":"duplicate","reason":' .. cjson.encode('a duplicate of ' .. holder) .. '}')
  end
  return true
end

for at = 3, #ARGV, 9 do
  local jid, line, answer = ARGV[at], ARGV[at + 1], 1
  if redis.call('SISMEMBER', KEYS[3], jid) == 1 then
    answer = 0
  elseif line ~= '' and stopped_lines[line] then
    answer = 'LINE'
  else
    redis.call('SADD', KEYS[3], jid)
    local fine, admitted, refusal = pcall(push_row, jid, unpack(ARGV, at + 2, at + 8))
    if not fine or not admitted then
      redis.call('SREM', KEYS[3], jid)
      answer, stopped_lines[line] = fine and refusal or in_words(admitted), true
    elseif is_duplicate(admitted, jid, ARGV[at + 7]) then
      answer = {admitted}
    end
  end
  answers[#answers + 1] = answer
end
pcall(intake.flush)  -- a batch whose counts are no numbers stops no other row
batches.flush()
return answers
