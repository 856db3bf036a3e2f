-- limit_leave: who is no job gives its place of a limit back, or those do whose leases have lapsed; who waits goes on
-- KEYS queues
-- ARGV (member until)*
-- returns the members that left: lease, limit and whose, each on a line; until: "", or the end of the lease that it must
--   have still, and that is over: whoever renewed it since stays
-- include base
-- include keys
-- include effects
redis.call('ZREM', key('cancelled'), '')  -- no-op write: after a removal a full server accepts the writes that follow
local now, left = server_now(), {}
for at = 1, #ARGV, 2 do
  local member, ends = ARGV[at], ARGV[at + 1]
  if ends == '' or (redis.call('ZSCORE', key('programs'), member) == ends and tonumber(ends) <= now) then
    local lease, name, by = string.match(member, '^([^\n]*)\n([^\n]*)\n(.*)$')
    if lease then
      prepare_effects().slot_free(name, by, lease)
    end
    redis.call('ZREM', key('programs'), member)
    left[#left + 1] = member
  end
end
finish_effects()
return left
