-- move: take entries out of a sorted set and put each where it goes next: into its queue, into the dead set, nowhere
-- KEYS queues source
-- ARGV dead_max dead_timeout (where name old new effects)*
-- returns one status an entry: 1 moved, 0 it was not there any more, a text: the server refused, it is where it was;
--   "HELD <jid>": it was dead, and another job has its key by now.
--   where: queue (called name), next (to run there), waits (for it, once more: the last effect is "await", see work/waits.py), dead (with the
--   dead of the batch called name, while it stands), later (old stays, due name seconds from the server's now), at (new in
--   its place, due at the Unix time name), nowhere. ZREM is the fence: of two that move the same entry, one succeeds.
--   Effects are those of a job that ends here or is enqueued, see lib/effects.lua.
-- include moving
local move, status = moving(KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]), 3), {}
for entry = 1, (#ARGV - 2) / 5 do
  local at = 5 * entry - 2
  status[entry] = move(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
end
finish_effects()
return status
