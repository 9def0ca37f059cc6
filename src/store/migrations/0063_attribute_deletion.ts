/** Names of attributes that were deleted stay until their values are gone. */
export const attributeDeletion = {
  version: 63,
  name: "attribute deletion",
  compatible: true,
  statements: (): string[] => [
    "ALTER TABLE run_attribute_names ADD COLUMN deleted_at BIGINT",
    `CREATE INDEX run_attribute_names_deleted ON run_attribute_names (environment_id, name)
      WHERE deleted_at IS NOT NULL`,
  ],
};
