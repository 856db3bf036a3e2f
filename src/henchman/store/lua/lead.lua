-- lead: take a duty that one process at a time has, go on having it, or give it up
-- KEYS duty announced
-- ARGV identity lease_ms text
-- returns 2 it is ours from now on for lease_ms, 1 it goes on being ours, 0 another process has it or, with lease_ms 0, we
--   gave it up: see lib/lead.lua. With a text announced holds it from now on, whoever leads. A removal comes before
--   each write: a full server accepts what follows.
-- include lead
if ARGV[3] ~= '' then
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[2], ARGV[3])
end
return lead(KEYS[1], ARGV[1], ARGV[2]) or 0
