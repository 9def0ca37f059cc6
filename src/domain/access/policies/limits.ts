/** Policies of an org. */
export const policiesMax = 500;
export const policyVersionsMax = 10_000;
export const policyNameCharsMax = 100;
export const policyTextCharsMax = 8 * 1024;
export const dryRunDecisionsMax = 10_000;
/** What decides over the calls of an org is believed for this long, of so many orgs at once. */
export const accessKeptMs = 500;
export const accessOrgsMax = 5_000;
