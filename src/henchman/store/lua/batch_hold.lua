-- batch_hold: jobs of paused batches that were about to start wait until these go on
-- KEYS queues lease tomb (flight queue)*
-- ARGV lease_ms (pair batch jid payload waiting effects)*
-- returns "LOST" when the identity was buried, "LAPSED" when the lease is gone; else a status a job: 1 it waits, and is in
--   flight no more; 0 it is not ours any more; 2 its batch is not paused: it may start; a text: the server refused, it is in
--   flight as before. waiting: the payload as it waits, without the time of its push. effects: what it had from a line, a
--   key or places, others have. The fence is that the payload is in flight. A held job waits for a need that is told of
--   the server alone: of its batch's id, in the scope "batch:".
-- include base
-- include keys
-- include effects
-- include parked
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'LOST'
end
if redis.call('PEXPIRE', KEYS[2], ARGV[1]) == 0 then
  return 'LAPSED'
end
local needs, status = prepare_effects().needing(), {}

local function is_paused(id)
  local facts = key('batch_base') .. id
  local paused = redis.call('HEXISTS', facts, 'paused') == 1
  if not paused then
    redis.call('SREM', key('paused_batches'), id)  -- of a batch that was deleted by hand
  end
  return paused
end

-- In flight until it is parked as a whole: a refusal half-way leaves it there.
local function hold(pair, id, jid, payload, waiting, effects)
  local queue = string.sub(KEYS[3 + 2 * pair], #key('queue_prefix') + 1)
  local job = {jid = jid, queue = queue, due = '', payload = waiting, tracked = tracked_later(id, jid)}
  local missing = {{line = 'nbatch:\n' .. id, letter = '', phase = ''}}
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

local function judged(pair, id, jid, payload, waiting, effects)
  if not is_paused(id) then
    return 2
  elseif not redis.call('LPOS', KEYS[2 + 2 * pair], payload) then
    return 0
  end
  hold(pair, id, jid, payload, waiting, effects)
  return 1
end

for at = 2, #ARGV, 6 do
  local fine, answer = pcall(judged, tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  status[#status + 1] = fine and answer or in_words(answer)
end
finish_effects()
return status
