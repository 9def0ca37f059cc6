/**
 * Ids of providers are known by the idempotency keys of their events. No query reads the index of deliveries by
 * these ids, which cost every webhook a write.
 */
export const webhookKeys = {
  version: 42,
  name: "webhook keys",
  compatible: true,
  statements: (): string[] => ["DROP INDEX webhook_deliveries_known"],
};
