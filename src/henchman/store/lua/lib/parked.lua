-- Parking: who waits for a lock, or for what it needs. Lines and rows are told of in lib/locks.lua.
local function doubt_of(await_key)
  return string.sub(await_key, 1, 1) .. ' ' .. string.sub(await_key, 2)
end

-- A row of the parked: queue; `due`, "" or a Unix time; why it waits: "running", "needs…", or "key <digest>" for the lock
-- of a phase before its first start; `tracked`, the effects that tell the history that it goes on, or ""; its payload.
local function parked_row_text(queue, due, reason, tracked, payload)
  return queue .. '\n' .. due .. '\n' .. reason .. '\n' .. tracked .. '\n' .. payload
end

-- When a job is over, with all its attempts; nothing where its payload does not say.
local function deadline_of(payload)
  if not string.find(payload, '"deadline":', 1, true) then
    return nil
  end
  local fine, job = pcall(cjson.decode, payload)
  local ours = fine and type(job) == 'table' and job.hm
  return type(ours) == 'table' and tonumber(ours.deadline) or nil
end

-- Write the row of a job. Its time has a place in a set, too: there it moves along when the clock steps. It waits until
-- its deadline at most.
local function put_parked(jid, queue, due, reason, tracked, payload)
  redis.call('HSET', key('parked'), jid, parked_row_text(queue, due, reason, tracked, payload))
  if tonumber(due) then
    redis.call('ZADD', key('parked_due'), due, jid)
  end
  local deadline = deadline_of(payload)
  if deadline then
    redis.call('ZADD', key('parked_until'), as_text(deadline), jid)
  end
end

-- The effects that tell the history that a tracked job goes on, when it waits now.
local function tracked_later(batch, jid)
  return cjson.encode({{'track', batch, jid, 'enqueued', '0', '', '{"ending":"staged"}', ''}})
end

-- Let a job wait at the end of a line.
local function park(jid, queue, due, reason, payload, await_key, tracked)
  local waiting_line = key('awaits') .. await_key
  put_parked(jid, queue, due, reason, tracked or '', payload)
  redis.call('ZADD', waiting_line, 'NX', redis.call('INCR', key('token')), jid)
  redis.call('ZADD', key('doubt'), 'NX', as_text(server_now()), doubt_of(await_key))
end
