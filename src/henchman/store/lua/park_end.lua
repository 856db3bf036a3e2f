-- park_end: take jobs out of their wait, and put each where it goes next; or change what is told of its wait
-- KEYS queues
-- ARGV dead_max dead_timeout (jid where name old new effects lines)*
-- returns one status a job: 1 done; 2 what it waited for at `name` is met, and others are not yet; 0 its row is another by
--   now, or gone: nothing was changed; a text: the server refused, it waits as before.
--   where: queue (it waits for nothing any more, and goes into its queue or, before its time, into the schedule), met (it
--   waits no longer in the line called name), stays (with the row new), nowhere, dead (with the dead of the batch called
--   name, while it stands). new: the row where it stays, else the payload. old: its row, the fence. lines: JSON list of
--   those that it may stand in, beside those of hm:needs. An empty old is that of a job that has no row: what is left of
--   its wait is taken away. Effects are those of a job that ends here, see lib/effects.lua.
-- include base
-- include keys
-- include to_dead
-- include effects
-- include parked
local parked, status = key('parked'), {}
local waiting = prepare_effects()
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow

local function leave_lines(jid, lines)
  local several = key('needs') .. jid
  for _, names in ipairs({redis.call('SMEMBERS', several), lines}) do
    for _, name in ipairs(names) do
      local waiting_line = key('awaits') .. name
      redis.call('ZREM', waiting_line, jid)
    end
  end
  redis.call('DEL', several)
  redis.call('ZREM', key('parked_until'), jid)
  redis.call('ZREM', key('parked_due'), jid)
end

-- The need of a line is met; whether the job waits for others.
local function waits_on(jid, line, row)
  local several, waiting_line = key('needs') .. jid, key('awaits') .. line
  redis.call('ZREM', waiting_line, jid)
  if redis.call('SCARD', several) > 1 and redis.call('SREM', several, line) >= 0 then
    redis.call('HSET', parked, jid, row)
    return true
  end
  return false
end

local function end_wait(jid, where, name, old, new, effects, lines)
  local row = redis.call('HGET', parked, jid)
  if not row and old == '' then
    leave_lines(jid, lines)
    return 1
  end
  if row ~= old then
    return 0
  end
  local queue, due, reason, tracked = waiting.parked_row(jid)
  if not queue then
    queue, due, reason, tracked = '', '', '', ''  -- a row of somebody else: it can only be ended
  end
  if where == 'stays' then
    redis.call('HSET', parked, jid, new)
    return 1
  end
  if where == 'met' and waits_on(jid, name, parked_row_text(queue, due, reason, tracked, new)) then
    return 2
  end
  if where == 'queue' or where == 'met' then
    waiting.let_go(reason == 'running' and 'r' or 'n', queue, due, new, tracked)
  elseif where == 'dead' then
    to_dead(new, server_now(), name, tonumber(ARGV[1]), tonumber(ARGV[2]))
  end
  redis.call('HDEL', parked, jid)
  leave_lines(jid, lines)
  if where == 'nowhere' or where == 'dead' then
    carry_out(new, where == 'dead' and name == '' and 'dead' or 'deleted', effects)
  end
  return 1
end

for at = 3, #ARGV, 7 do
  local fine, answer = pcall(end_wait, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5],
    cjson.decode(ARGV[at + 6]))
  status[#status + 1] = fine and answer or in_words(answer)
end
finish_effects()
return status
