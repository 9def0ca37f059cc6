/**
 * Priorities and throttles. A function with one of them is `paced`: its runs wait in lanes, and a claim looks at those
 * that have begun and those that have not apart.
 */
export const flowControl = {
  version: 40,
  name: "flow_control",
  compatible: true,
  statements: (): string[] => [
    "ALTER TABLE functions ADD COLUMN paced BIGINT",
    "ALTER TABLE functions ADD COLUMN throttle_us BIGINT",
    "ALTER TABLE functions ADD COLUMN throttle_burst BIGINT",
    // When the lane's next start is due at the pace of its throttle alone, in microseconds; NULL before its first.
    "ALTER TABLE lanes ADD COLUMN paced_until_us BIGINT",
    "ALTER TABLE executions ADD COLUMN head_start_ms BIGINT",
    `CREATE INDEX executions_begun_in_lane ON executions (lane_id, wake_at, run_id)
      WHERE state = 'queued' AND lane_id IS NOT NULL AND execution_seq > 0`,
  ],
};
