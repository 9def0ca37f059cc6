/** Ids begin with their time: lists of deliveries go by them, and a webhook writes one index less. */
export const deliveryLists = {
  version: 54,
  name: "delivery lists",
  compatible: true,
  statements: (): string[] => [
    "DROP INDEX webhook_deliveries_list",
    "DROP INDEX webhook_deliveries_source",
    "CREATE INDEX webhook_deliveries_source ON webhook_deliveries (environment_id, source_id, id)",
  ],
};
