module sluice.test/publisher

go 1.19

require github.com/rabbitmq/amqp091-go v1.16.0
