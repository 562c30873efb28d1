export const configuration = () => ({ title: () => 'configuration', view: () => [] });
