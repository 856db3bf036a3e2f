-- keyed_push: push jobs with a key into one queue or the schedule, each if its key lets it
-- KEYS queues
-- ARGV lane turn name ask (jid due payload mark key needs)*
-- returns a line for each job, as lib/admit.lua has it; it ends with the first duplicate where `ask` says raise. due: ""
--   now, "+s" in s seconds of the server, else a Unix time. ask: JSON, what is the same for all. needs: JSON, what the
--   job waits for, [[scope, name, once_for], …], or "": then its payload does not tell when it enters its queue. The same
--   turn of a lane again gets the same answer and does nothing.
-- include base
-- include keys
-- include admit
local before = answered_before(ARGV[1], ARGV[2])
if before then
  return before
end
local ask, now, answers = cjson.decode(ARGV[4]), server_now(), {}
for at = 5, #ARGV, 6 do
  local job = {jid = ARGV[at], queue = ARGV[3], due = as_due(ARGV[at + 1], now), payload = ARGV[at + 2],
    mark = ARGV[at + 3], key = ARGV[at + 4],
    needs = ARGV[at + 5] ~= '' and cjson.decode(ARGV[at + 5]) or nil}
  local answer = admit(ask, job, now)
  answers[#answers + 1] = answer
  if ends_call(ask, answer) then
    break
  end
end
return answer_lane(ARGV[1], ARGV[2], answers)
