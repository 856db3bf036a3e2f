-- hold: jobs of what is paused, that were about to start, wait until it goes on
-- KEYS queues lease tomb (flight queue)*
-- ARGV lease_ms (pair subject member jid payload waiting effects)*
-- returns "LOST" when the identity was buried, "LAPSED" when the lease is gone; else a status a job: 1 it waits, and is in
--   flight no more; 0 it is not ours any more; 2 its subject is not paused: it may start; a text: the server refused, it is
--   in flight as before. subject: see pause.lua. member: the batch of a tracked job, "-" when it is of none, "" when it is
--   not tracked. waiting: the payload as it waits, without the time of its push. effects: they free the key and the places
--   that a line had handed to the job. The fence is that the payload is in flight. What a held job waits for stands on the
--   server and in no payload: a need of its subject, in the scope "batch:".
-- include base
-- include keys
-- include effects
-- include parked
-- include leased
local needs, status = prepare_effects().needing(), {}

local function is_paused(subject)
  if string.find(subject, ':', 1, true) then
    return redis.call('HEXISTS', key('paused_kinds'), subject) == 1
  end
  local facts = key('batch_base') .. subject
  local paused = redis.call('HEXISTS', facts, 'paused') == 1
  if not paused then
    redis.call('SREM', key('paused_batches'), subject)  -- of a batch that was deleted by hand
  end
  return paused
end

-- In flight until it is parked as a whole: a refusal half-way leaves it there.
local function hold(pair, subject, member, jid, payload, waiting, effects)
  if redis.call('HEXISTS', key('parked'), jid) == 1 then
    error('another job with its id waits already', 0)
  end
  local queue = string.sub(KEYS[3 + 2 * pair], #key('queue_prefix') + 1)
  local tracked = member ~= '' and tracked_later(member ~= '-' and member or '', jid) or ''
  local job = {jid = jid, queue = queue, due = '', payload = waiting, tracked = tracked}
  local missing = {{line = 'nbatch:\n' .. subject, letter = '', phase = ''}}
  local fine, problem = pcall(needs.park, job, missing, 2)  -- 2: what it waits for stands in its set, not in its payload
  if not fine then
    redis.pcall('HDEL', key('parked'), jid)
    local several = key('needs') .. jid
    redis.pcall('DEL', several)
    error(in_words(problem), 0)
  end
  redis.call('LREM', KEYS[2 + 2 * pair], -1, payload)
  carry_out(payload, 'held', effects)
end

local function judged(pair, subject, member, jid, payload, waiting, effects)
  if not is_paused(subject) then
    return 2
  elseif not redis.call('LPOS', KEYS[2 + 2 * pair], payload) then
    return 0
  end
  hold(pair, subject, member, jid, payload, waiting, effects)
  return 1
end

for at = 2, #ARGV, 7 do
  local fine, answer = pcall(judged, tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4],
    ARGV[at + 5], ARGV[at + 6])
  status[#status + 1] = fine and answer or in_words(answer)
end
finish_effects()
return status
