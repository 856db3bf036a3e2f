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
--   the lane is one of all keyed pushes, and the answer that of keyed_push. A job whose ask has `step` is that step of a
--   workflow: pushed again it is no second one; where another job has the name nothing is pushed: "STEP <name>".
-- include base
-- include keys
-- include members
local id, batches, now = ARGV[1], batching(), server_now()
local intake, lanes = taking_in(batches, now), key('batch_base') .. id .. ':lanes'
local keyed, answers = (ARGV[11] or '') ~= '', {}
local answered = keyed and answered_before(ARGV[4], ARGV[5])
if answered then
  return answered
end
if id ~= '' then
  local before = ARGV[4] ~= '' and redis.call('HGET', lanes, ARGV[4])
  if before and tonumber(string.match(before, '^%d+')) >= tonumber(ARGV[5]) then
    return tonumber(string.match(before, '%d+$'))
  end
  local refusal = intake.refusal_of(id, ARGV[2])
  if refusal then
    return refusal
  end
end
if ARGV[6] ~= '' then
  redis.call('SET', key('history_on'), ARGV[6], 'NX')
end
if batches.is_full() then
  return 'FULL'
end
for at = 7, keyed and #ARGV or 0, 5 do
  local step = intake.other_step(id, ARGV[at], ARGV[at + 4])
  if step then
    return 'STEP ' .. step
  end
end
local job = {queue = ARGV[3]}
for at = 7, #ARGV, 5 do
  job.jid, job.when, job.payload = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local answer, ends = intake.take(id, job, ARGV[at + 3], ARGV[at + 4])
  answers[#answers + 1] = answer
  if ends then
    break
  end
end
intake.flush()
if id ~= '' and ARGV[4] ~= '' and not keyed then
  redis.call('HSET', lanes, ARGV[4], ARGV[5] .. ' ' .. intake.taken)
end
batches.flush()
return keyed and answer_lane(ARGV[4], ARGV[5], answers) or intake.taken
