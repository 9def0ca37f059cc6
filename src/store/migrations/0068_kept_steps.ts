/** Which steps a resume left while it ran one before them again. Rows from before are in their order. */
export const keptSteps = {
  version: 68,
  name: "kept steps",
  compatible: true,
  statements: (): string[] => ["ALTER TABLE steps ADD COLUMN is_kept BIGINT"],
};
