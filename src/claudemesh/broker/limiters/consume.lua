-- Takes one unit of a member's budget for each id, unless it was taken for that id in this window.
--
-- KEYS[1]  the member: claudemesh:limiter:{mesh:sender}
-- ARGV     the window's length in ms, the budget, then the ids
-- Returns, for each id, 0 for a yes, and for a no in how many ms the window ends.
--
-- By the server's own clock, so that brokers whose clocks differ agree on the window. Its number is part of the key's
-- name, and the name's tag keeps all keys of a member in one slot of a cluster. All ids of a member and window are one
-- set, which is its own counter, takes less memory than a key for each, and goes as a whole.

local window_ms, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local wait_ms = window_ms - now_ms % window_ms
local key = string.format('%s:%d', KEYS[1], math.floor(now_ms / window_ms))

local taken = redis.call('SCARD', key)
local before = taken
local answers = {}
for i = 3, #ARGV do
  local yes
  if taken < limit then
    taken = taken + redis.call('SADD', key, ARGV[i])
    yes = true
  else
    yes = redis.call('SISMEMBER', key, ARGV[i]) == 1  -- a no has taken nothing, so there is nothing to give back
  end
  answers[i - 2] = yes and 0 or wait_ms
end
if taken > before then  -- two windows: a server's clock that steps back finds the last one as it was left
  redis.call('PEXPIRE', key, 2 * window_ms)
end
return answers
