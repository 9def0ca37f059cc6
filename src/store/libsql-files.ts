/** Where the databases of environments lie: beside the store's own. */
export const environmentsFolder = (file: string): string => `${file}.environments`;
