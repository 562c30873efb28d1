export const connections = () => ({ title: () => 'connections', view: () => [] });
