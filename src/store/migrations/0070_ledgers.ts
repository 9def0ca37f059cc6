/** Whether a ledger counts bytes of all kinds. Those from before counted events alone. */
export const ledgers = {
  version: 70,
  name: "ledgers of all that is stored",
  compatible: true,
  statements: (): string[] => ["ALTER TABLE quotas ADD COLUMN counts_all BIGINT NOT NULL DEFAULT 0"],
};
