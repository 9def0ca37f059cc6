import type { StoreEngine } from "../store.ts";

/** A breaker's key holds what stands for an endpoint in an index row of bounded size; the endpoint itself stands beside it. */
export const endpointKeys = {
  version: 24,
  name: "endpoint_keys",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // Set where `endpoint_url`, a part of the key, has the hash of an endpoint that is too long for it.
    "ALTER TABLE breakers ADD COLUMN endpoint TEXT",
  ],
};
