-- What jobs need before they start: whether they have it, and how they wait for it. lib/needs.lua has what a need is.
-- include locks
-- include once
-- include parked

local needs_asked_of_call
local function asking()
  if needs_asked_of_call then
    return needs_asked_of_call
  end
  local needs = {}
  needs_asked_of_call = needs

  -- What became of a need: l its job lives, d it is dead, s it succeeded, f it failed, x it is over without success,
  -- "" nobody knows; then its jid, since when, and the phase of its lock. A live run beats an older success.
  function needs.state(scope, name, once_for)
    local batch = string.match(scope, '^batch:(.*)$')
    if batch then
      local facts = key('batch_base') .. batch
      local steps, step_names = facts .. ':steps', facts .. ':names'
      local letter, job = redis.call('HGET', steps, name), redis.call('HGET', step_names, name)
      return letter or (job and 'l' or ''), job and string.match(job, '^%S+') or '', '0', ''
    end
    local gone, gone_since, gone_phase
    for _, phase in ipairs({'o', 'f'}) do
      local jid, since, _, is_dead = lock_holder(phase, scope, name)
      if jid and not is_dead then
        return 'l', jid, since or '0', phase
      end
      if jid then
        gone, gone_since, gone_phase = jid, since, phase
      end
    end
    if gone then
      return 'd', gone, gone_since, gone_phase
    end
    local letter, jid = once_look(scope, name, tonumber(once_for) or 604800)
    return letter or '', jid or '', '0', ''
  end

  -- Those of `asked`, a list of {scope, name, once_for}, that are not met, and how many different ones it has.
  function needs.missing(asked)
    local found, seen, count = {}, {}, 0
    for _, one in ipairs(asked) do
      local line = 'n' .. one[1] .. '\n' .. one[2]
      if not seen[line] then
        seen[line], count = true, count + 1
        local letter, _, _, phase = needs.state(one[1], one[2], one[3])  -- phase: of the lock of one that is alive or dead
        if letter ~= 's' then
          found[#found + 1] = {line = line, letter = letter, phase = phase}
        end
      end
    end
    return found, count
  end

  -- Park a job until `missing` are met. What may refuse is asked before anything is written.
  function needs.park(job, missing, count, wait_at_most)
    local jid, now = job.jid, server_now()
    for _, one in ipairs(missing) do
      local waiting_line = key('awaits') .. one.line
      redis.call('ZCARD', waiting_line)
    end
    local several = key('needs') .. jid
    redis.call('SMEMBERS', several)
    redis.call('ZCARD', key('doubt'))
    redis.call('ZCARD', key('parked_until'))
    redis.call('ZCARD', key('parked_due'))
    redis.call('LLEN', key('decide'))
    put_parked(jid, job.queue, job.due, 'needs', job.tracked or '', job.payload)
    for _, one in ipairs(missing) do
      local waiting_line = key('awaits') .. one.line
      redis.call('ZADD', waiting_line, 'NX', redis.call('INCR', key('token')), jid)
      if count > 1 then
        redis.call('SADD', several, one.line)
      end
      if one.phase ~= '' then
        redis.call('ZADD', key('doubt'), 'NX', as_text(now), one.phase .. ' ' .. string.sub(one.line, 2))
      end
      if one.letter ~= 'l' and one.letter ~= '' then
        redis.call('RPUSH', key('decide'),
          (one.letter == 'd' and 'dead\n' or 'over\n') .. jid .. '\n0\n' .. string.sub(one.line, 2))
      end
    end
    if wait_at_most then
      redis.call('ZADD', key('parked_until'), 'LT', as_text(now + wait_at_most), jid)
    end
  end

  return needs
end
