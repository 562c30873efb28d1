export const quotas = () => ({ title: () => 'quotas', view: () => [] });
