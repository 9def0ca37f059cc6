/** Messages of alerts are found by their target: the first of each, however many wait behind it. */
export const alertTargets = {
  version: 82,
  name: "waiting messages of alerts by target",
  compatible: true,
  statements: (): string[] => [
    `CREATE INDEX alert_deliveries_waiting ON alert_deliveries (environment_id, target, due_at, alert_id)
      WHERE state = 'waiting'`,
    "DROP INDEX alert_deliveries_due",
  ],
};
