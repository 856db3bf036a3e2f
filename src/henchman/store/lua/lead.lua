-- lead: have a duty that one process at a time has, or go on having it
-- KEYS duty
-- ARGV identity lease_ms
-- returns 1 it is ours for lease_ms, 0 another process has it, see lib/lead.lua
-- include lead
return lead(KEYS[1], ARGV[1], ARGV[2]) and 1 or 0
