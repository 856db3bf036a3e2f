-- cron_tick: enqueue what is due, each tick once, whoever sends it and however often
-- KEYS queues
-- ARGV revision (name target planned jid payload overlap_for detail ask)*
-- returns {server's now} when a cron was changed since the given revision: nothing was done; else {now, status…}, one
--   status a tick: 1 done, 0 it had been done, -1 it is not due by the server's clock, 2 passed over because the job of
--   an earlier tick, less than overlap_for seconds old (0: who cares), has not ended, 3 because its key is taken; a
--   text: the server refused it. ask: as in batch_push.
--   The last planned time of each cron is the fence: it is compared, the job pushed and it is set in one go. Without a
--   payload the tick is passed over. What was pushed is noted in cron_past, the last 50, newest left; with overlap_for
--   also in cron_running, "<now> <jid>", which the end of the job removes (cron_done in lib/effects.lua); what was not
--   pushed because of that in cron_skipped, "<planned> <now> <how many for this jid> <jid>". detail: JSON for the
--   history, of a job that is tracked.
-- include base
-- include keys
-- include stream
-- include admit
local now, ticks, jobs_running, skipped_ticks = server_now(), key('cron_ticks'), key('cron_running'), key('cron_skipped')
local answer, refused, stream = {as_text(now)}, {}, streaming()
if (redis.call('GET', key('cron_revision')) or '0') ~= ARGV[1] then
  return answer
end

local function before_it(name, overlap_for)
  local since, jid = string.match(redis.call('HGET', jobs_running, name) or '', '^(%S+) (.*)$')
  if tonumber(since) and tonumber(since) > now + 1 then  -- from before the clock went back
    since = as_text(now)
    redis.pcall('HSET', jobs_running, name, since .. ' ' .. jid)
  end
  return tonumber(since) and now - tonumber(since) < overlap_for and jid
end

local function skip(name, planned, jid)
  redis.call('ZADD', ticks, planned, name)
  local noted = redis.pcall('HGET', skipped_ticks, name)
  local count, other = string.match(type(noted) == 'string' and noted or '', '^%S+ %S+ (%d+) (.*)$')
  local skipped = other == jid and count + 1 or 1
  redis.pcall('HSET', skipped_ticks, name, planned .. ' ' .. as_text(now) .. ' ' .. skipped .. ' ' .. jid)
  return 2
end

-- Push a job that has a key; who has it, when that is another.
local function push_keyed(target, jid, payload, ask)
  local answer = admit(ask, {jid = jid, key = ask.key, mark = ask.mark, queue = target, due = '', payload = payload}, now)
  return string.match(answer, '^[DRP] (%S+)')
end

local function push(name, target, planned, jid, payload, overlap_for, detail, ask)
  local running = payload ~= '' and overlap_for > 0 and before_it(name, overlap_for)
  if running then
    return skip(name, planned, running)
  end
  local holder = payload ~= '' and ask ~= '' and push_keyed(target, jid, payload, cjson.decode(ask))
  if holder then
    skip(name, planned, holder)
    return 3
  end
  if payload ~= '' and ask == '' then
    redis.call('SADD', KEYS[1], target)
    redis.call('LPUSH', key('queue_prefix') .. target, payload)  -- the first that may be refused; what follows is not
  end
  redis.call('ZADD', ticks, planned, name)
  if payload ~= '' then
    local past = key('cron_past') .. name
    redis.pcall('LPUSH', past, planned .. ' ' .. as_text(now) .. ' ' .. jid)
    redis.pcall('LTRIM', past, 0, 49)
  end
  if payload ~= '' and overlap_for > 0 then
    redis.pcall('HSET', jobs_running, name, as_text(now) .. ' ' .. jid)
  end
  if payload ~= '' and detail ~= '' then
    pcall(stream.record, jid, '', 'enqueued', '0', '', detail)
  end
  return 1
end

for tick = 1, (#ARGV - 1) / 8 do
  local at = 8 * tick - 6
  local name, planned = ARGV[at], ARGV[at + 2]
  local last = redis.call('ZSCORE', ticks, name)
  local status = refused[name]  -- a later one must not go before one that was refused
  if not status and tonumber(planned) > now then
    status = -1
  elseif not status and last and tonumber(last) >= tonumber(planned) then
    status = 0
  elseif not status then
    local fine, result = pcall(push, name, ARGV[at + 1], planned, ARGV[at + 3], ARGV[at + 4],
      tonumber(ARGV[at + 5]), ARGV[at + 6], ARGV[at + 7])
    status = result
    if not fine then
      status = type(result) == 'table' and result.err or tostring(result)
      refused[name] = status
    end
  end
  answer[tick + 1] = status
end
pcall(stream.flush)  -- a stream that holds something else stops no cron
return answer
