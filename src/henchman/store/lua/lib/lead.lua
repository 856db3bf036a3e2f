-- The election for a duty that one process at a time has: 1 when `identity` goes on having it for the next `ms`
-- milliseconds, 2 when it has it from now on, else false. With 0 ms it gives the duty up. The first write is a removal or
-- an expiry, which a full server accepts. A lease of another that would last longer than `longest` (else `ms`) is from
-- before the server's clock went back: it ends in time all the same.
local function lead(key, identity, ms, longest)
  local holder = redis.call('GET', key)
  if ms == '0' then
    if holder == identity then
      redis.call('DEL', key)
    end
    return false
  end
  if holder == identity then
    redis.call('PEXPIRE', key, ms)
    return 1
  end
  if not holder then
    redis.call('DEL', key)
    redis.call('SET', key, identity, 'PX', ms)
    return 2
  end
  if redis.call('PTTL', key) > (longest or tonumber(ms)) then
    redis.call('PEXPIRE', key, ms)
  end
  return false
end
